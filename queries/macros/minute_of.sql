-- minute_of: by which minute is a moment grouped?
-- kind:    macro
-- returns: BIGINT number of the stretch of $minutes minutes; null unless the dimension is minute
-- params:  dimension VARCHAR, at_ns BIGINT, minutes BIGINT
CASE $dimension WHEN 'minute' THEN $at_ns // ($minutes * 60_000_000_000) END
