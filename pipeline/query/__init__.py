"""Questions to run folders, asked in SQL: the files of `queries/`, loaded into DuckDB."""
