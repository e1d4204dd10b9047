"""`make bench`: measures this machine, one benchmark after the other."""

from benchmarks import engine, report

engine.main()
report.main()
