"""A Celery application whose tasks run the job; its broker is a folder."""

from pathlib import Path

import jobs
from celery import Celery

from placebench.profiler.integrations.celery import profile_tasks

folder = Path(jobs.settings["folder"])
for name in ("broker", "processed", "control"):
    (folder / name).mkdir(exist_ok=True)
application = Celery("celery_application", broker="filesystem://")
application.conf.update(
    broker_transport_options={
        "data_folder_in": str(folder / "broker"),
        "data_folder_out": str(folder / "broker"),
        "processed_folder": str(folder / "processed"),
        "control_folder": str(folder / "control"),
    },
    worker_enable_remote_control=False,
)
profile_tasks(application, profiler=jobs.profiler, folder=folder / "recordings", mode=jobs.settings["mode"])


@application.task(name="job")
def job(number: int) -> None:
    """Run the job, and leave its result in the folder."""
    jobs.run_and_write(number)
