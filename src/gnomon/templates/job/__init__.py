"""A job: its command, and its document with the record and the report."""

from gnomon.options import CommandRow
from gnomon.plugins import Job

YOURS = Job(
    commands={"yours": CommandRow("yours.job:yours", "Show how long a user waits for the first answer.")},
    documents={"yours": ("yours.document:YoursDocument", "yours.report:yours_report")},
    functions={"yours": "yours.job:yours"},
)
