"""`python -m mai_plugin.harness.vlmevalkit`: the same as `mai vlmevalkit`."""

from mai_plugin.harness.vlmevalkit.command import main

raise SystemExit(main())
