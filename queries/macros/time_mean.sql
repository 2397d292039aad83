-- time_mean: what is the mean of levels, weighted by time?
-- kind:    macro
-- returns: DOUBLE the mean; null if no time passed
-- params:  level ANY, time_ns ANY
SUM($level * $time_ns) / NULLIF(SUM($time_ns), 0)
