"""One way of doing an operation per file; `conf/variant` names them."""
