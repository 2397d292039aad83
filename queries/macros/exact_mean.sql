-- exact_mean: what is the mean of many doubles, whatever the order in which they are added?
-- kind:    macro
-- returns: DOUBLE the mean of the values rounded to 9 decimals; null if there is none
-- params:  x ANY
-- note:    a sum of doubles changes in its last digits with the number of threads; one of decimals does not.
SUM($x::DECIMAL(28, 9)) / COUNT($x)
