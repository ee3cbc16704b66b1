"""Tuning records and the logs of AutoTVM, Ansor and MetaSchedule."""
