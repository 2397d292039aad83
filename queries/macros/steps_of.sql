-- steps_of: which entries of a chunk of steps lie in a span of steps?
-- kind:    macro
-- returns: LIST the entries for from_step to to_step - 1, as far as the chunk has them
-- params:  entries ANY, first_step BIGINT, from_step BIGINT, to_step BIGINT
LIST_SLICE($entries, GREATEST($from_step - $first_step + 1, 1), LEAST($to_step - $first_step, 128))
