-- metric_rank: in which order are the metrics of latency shown?
-- kind:    macro
-- returns: INTEGER place, from 1
-- params:  metric VARCHAR
LIST_POSITION(['ttft', 'tpot', 'itl', 'itl_request_mean', 'e2e', 'queue'], $metric)
