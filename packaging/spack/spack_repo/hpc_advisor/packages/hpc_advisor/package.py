# The advisor as a module, for users and for a portal's app:
#   spack repo add packaging/spack/spack_repo/hpc_advisor
#   cd dist && spack install --no-checksum hpc-advisor
# The wheel is that of `make packages`, taken from the folder where spack runs. Its libraries come
# from the package index that pip uses here, with textual-serve for `advisor tui --browser`: Spack
# itself has no sqlite-utils, no textual-serve and no Textual 8. They stay in an environment of
# their own: the module brings the command. Daemon, collection and hooks are the packages'.
import os

from spack.package import (
    Executable,
    depends_on,
    license,
    mkdirp,
    run_after,
    symlink,
    version,
)
from spack_repo.builtin.build_systems.generic import Package


class HpcAdvisor(Package):
    """Scheduler-integrated energy and performance advisor for HPC sites"""

    homepage = "https://pypi.org/project/hpc-advisor"
    url = f"file://{os.getcwd()}/hpc_advisor-0.3.0-py3-none-any.whl"
    manual_download = True

    license("Apache-2.0")

    version("0.3.0", expand=False)

    depends_on("python@3.11:", type=("build", "run"))

    sanity_check_is_file = ["bin/advisor"]
    sanity_check_is_dir = ["environment/lib"]

    def install(self, spec, prefix):
        environment = prefix.environment
        self["python"].command("-m", "venv", environment)
        pip = Executable(environment.bin.pip)
        pip("install", "--quiet", f"{self.stage.archive_file}[tui]")
        mkdirp(prefix.bin)
        symlink("../environment/bin/advisor", prefix.bin.advisor)

    @run_after("install")
    def check_command(self):
        advisor = Executable(self.prefix.bin.advisor)
        advisor("--version")
        advisor("tui", "--help")
