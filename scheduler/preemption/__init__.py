"""What happens to the K and V of a preempted request, one file each."""
