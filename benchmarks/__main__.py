"""`make bench`: measures this machine, one benchmark after the other."""

from benchmarks import engine

engine.main()
