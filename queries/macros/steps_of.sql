-- steps_of: which entries of a chunk of steps lie in a span of steps, or so many steps before it?
-- kind:    macro
-- returns: LIST the entries for from_step to to_step - 1, as far as the chunk has the step before as well
-- params:  entries ANY, first_step BIGINT, from_step BIGINT, to_step BIGINT, back INTEGER
LIST_SLICE(
    $entries,
    GREATEST($from_step - $first_step, 1) + 1 - $back,
    LEAST($to_step - $first_step, LEN($entries)) - $back
)
