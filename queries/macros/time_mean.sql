-- time_mean: what is the mean of levels, weighted by time?
-- kind:    macro
-- returns: DOUBLE the mean; null if no time passed
-- params:  level ANY, time_ns ANY
-- note:    levels are integers, so that the sum is exact and does not depend on the order of rows.
SUM($level::HUGEINT * $time_ns) / NULLIF(SUM($time_ns), 0)
