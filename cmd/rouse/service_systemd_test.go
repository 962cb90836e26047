package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"rouse/cmd/internal/cmdtest"
)

// userManager starts a user's systemd in separate namespaces and runs a script in them. It cannot
// reach the systemd of the machine.
const userManager = `
mount -t tmpfs tmpfs /run && mkdir -p -m 700 /run/user/0 /run/systemd/system || exit 77
umount -R /sys/fs/cgroup 2>/dev/null
if ! mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null; then
  mount -t tmpfs tmpfs /sys/fs/cgroup && mkdir -p /sys/fs/cgroup/systemd && mount -t cgroup -o none,name=systemd none /sys/fs/cgroup/systemd || exit 77
fi
export XDG_RUNTIME_DIR=/run/user/0 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/0/bus
dbus-daemon --session --address=unix:path=/run/user/0/bus --nofork --nopidfile 2>/dev/null & 
/lib/systemd/systemd --user --log-target=null &
for i in $(seq 100); do systemctl --user is-system-running >/dev/null 2>&1 && break; sleep 0.1; done
systemctl --user show-environment >/dev/null || exit 77
`

// TestServiceOfSystemd checks that a real systemd starts, restarts, reloads and stops the service,
// and starts it again after a kill.
func TestServiceOfSystemd(t *testing.T) {
	if os.Getenv("ROUSE_TEST_SYSTEMD") == "" {
		t.Skip("ROUSE_TEST_SYSTEMD is not set; .ci/run sets it")
	}
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("only root may make the namespaces")
	}

	program, err := exec.LookPath("rouse")
	if err != nil {
		t.Fatal(err)
	}
	// Do not look up systemctl in $PATH, which has the fake one.
	dir := cmdtest.Write(t, map[string]string{
		"rouse.yaml": "version: 1\nhome: ./home\ndashboard: {listen: off}\nagents: [{name: a}]\njobs: [{name: j, agent: a, schedule: \"0 8 * * *\", playbook: [{call: db_schema}]}]\n",
		"script": userManager + `
set -x
R=$PROGRAM/rouse
$R service install --name books | grep installed
$R service start
systemctl --user show books -P StatusText
kill -9 $(systemctl --user show books -P MainPID)
$R status --wait 60s | tail -1
systemctl --user show books -P NRestarts
$R service restart
systemctl --user reload books
for i in $(seq 300); do [ "$(systemctl --user show books -P ActiveState)" = active ] && break; sleep 0.1; done # it says first that it reloads
systemctl --user show books -P ActiveState
$R doctor --offline | grep ' service '
$R service stop
$R service status
$R service uninstall
`})
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(program)
	if err == nil {
		err = os.Link(real, filepath.Join(bin, "rouse"))
	}
	if err != nil {
		t.Fatal(err)
	}

	c := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", filepath.Join(dir, "script"))
	c.Dir = dir
	c.Env = []string{"HOME=" + dir, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PROGRAM=" + bin, "GORACE=" + os.Getenv("GORACE")}
	out, err := c.CombinedOutput()
	if c.ProcessState != nil && c.ProcessState.ExitCode() == 77 {
		t.Skipf("no systemd can be started here:\n%s", out)
	}
	if err != nil {
		t.Errorf("%v", err)
	}
	for _, want := range []string{
		"installed the service books", "ready: the service books serves", "\nserves 1 job, next j at ", "\n0 queued, 0 running, 0 waiting\n", "\n1\n", // the last one is the number of kills
		"\nactive\n", "books is installed, and this is its daemon since", "stopped the service books", "inactive (dead)", "uninstalled the service books",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
			break
		}
	}
}
