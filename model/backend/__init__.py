"""How attention over the paged cache is computed: one file per backend, named by `conf/backend/*.yaml`."""
