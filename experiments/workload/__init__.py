"""Workloads: one file each, named by the yaml of the same name in conf/workload."""
