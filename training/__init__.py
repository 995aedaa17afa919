"""How the tiny pair that the package ships was trained.  Not part of the wheel."""
