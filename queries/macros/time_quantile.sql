-- time_quantile: which level is not exceeded for a share of the time?
-- kind:    macro
-- returns: DOUBLE the lowest level of level_time with at least that share of time at or below it
-- params:  level ANY, upto_ns ANY, total_ns ANY, share ANY
MIN($level) FILTER (WHERE $upto_ns >= $share * $total_ns)
