-- label_of: by which value is a request grouped?
-- kind:    macro
-- returns: VARCHAR the request's tenant, model or class; null for any other dimension
-- params:  dimension VARCHAR, tenant VARCHAR, model VARCHAR, class VARCHAR
CASE $dimension WHEN 'tenant' THEN $tenant WHEN 'model' THEN $model WHEN 'class' THEN $class END
