"""What others make of the same inputs, one file each; `conf/kernel_ablation.yaml` names them."""
