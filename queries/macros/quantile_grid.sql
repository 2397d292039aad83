-- quantile_grid: at which shares is a distribution drawn?
-- kind:    macro
-- returns: DOUBLE[] 0 to 0.99 by hundredths, then 0.995 to 1 ever closer to 1
LIST_CONCAT(
    LIST_TRANSFORM(RANGE(100), LAMBDA percent: percent / 100),
    [0.995, 0.998, 0.999, 0.9995, 0.9999, 1]
)
