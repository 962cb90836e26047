//go:build amd64 || arm64

package sandbox_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rouse/agent/sandbox"
)

// target holds the targets of attacks. The test that starts the attacks creates all of them.
type target struct {
	Outside  string // folder that was not granted, with a file canary
	ReadOnly string // folder that may be read, with a file canary and a socket
	Inside   string // working folder
	TCP, UDP int
	Path     string // path of a socket
	Abstract string // name of an abstract socket
	Marker   int    // a process
	Parent   int    // process of the test
}

// attack is one attempt to break out. do returns nil if it succeeded.
type attack struct {
	name  string
	do    func(t target) error
	heard bool // the attack may seem successful; then the canaries decide
}

func call(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

func text(s string) uintptr {
	b, err := unix.BytePtrFromString(s)
	if err != nil {
		panic(err)
	}
	return uintptr(unsafe.Pointer(b))
}

func write(path string) error { return os.WriteFile(path, []byte("attacked"), 0o600) }

func read(path string) error {
	_, err := os.ReadFile(path)
	return err
}

func send(family, kind int, to unix.Sockaddr) error {
	fd, err := unix.Socket(family, kind, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return errors.Join(unix.Connect(fd, to), unix.Send(fd, []byte("attacked"), 0))
}

var local = [4]byte{127, 0, 0, 1}

var attacks = []attack{
	{"find a file that was left open", func(target) error {
		for fd := 3; fd < 64; fd++ {
			name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			if err == nil && !strings.HasPrefix(name, "anon_inode") && !strings.HasPrefix(name, "/sys") && !strings.HasPrefix(name, "/proc") {
				return nil
			}
		}
		return errors.New("none")
	}, false},

	// host files
	{"read a file outside", func(t target) error { return read(t.Outside + "/canary") }, false},
	{"read it by way of ..", func(t target) error {
		return read(t.Inside + "/../../" + strings.TrimPrefix(t.Outside, filepath.Dir(filepath.Dir(t.Inside))) + "/canary")
	}, false},
	{"read it through /proc/self/root", func(t target) error { return read("/proc/self/root" + t.Outside + "/canary") }, false},
	{"read it through the root of the parent", func(t target) error { return read(fmt.Sprintf("/proc/%d/root%s/canary", t.Parent, t.Outside)) }, false},
	{"read it through the supervisor", func(t target) error { return read(fmt.Sprintf("/proc/%d/root%s/canary", os.Getppid(), t.Outside)) }, false},
	{"read it through a link", func(t target) error {
		return errors.Join(os.Symlink(t.Outside, t.Inside+"/link"), read(t.Inside+"/link/canary"))
	}, false},
	{"read it by its handle", func(t target) error {
		h, mount, err := unix.NameToHandleAt(unix.AT_FDCWD, t.Inside, 0)
		if err != nil {
			return err
		}
		_, err = unix.OpenByHandleAt(mount, h, unix.O_RDONLY)
		return err
	}, false},
	{"list a folder outside", func(t target) error { _, err := os.ReadDir(t.Outside); return err }, false},
	{"write a file outside", func(t target) error { return write(t.Outside + "/canary") }, false},
	{"make a file outside", func(t target) error { return write(t.Outside + "/new") }, false},
	{"make a folder outside", func(t target) error { return os.Mkdir(t.Outside+"/new", 0o700) }, false},
	{"cut a file outside", func(t target) error { return os.Truncate(t.Outside+"/canary", 0) }, false},
	{"remove a file outside", func(t target) error { return os.Remove(t.Outside + "/canary") }, false},
	{"move a file outside in", func(t target) error { return os.Rename(t.Outside+"/canary", t.Inside+"/moved") }, false},
	{"link a file outside in", func(t target) error {
		return errors.Join(os.Link(t.Outside+"/canary", t.Inside+"/hard"), write(t.Inside+"/hard"))
	}, false},
	{"link it by a descriptor", func(t target) error {
		fd, err := unix.Open(t.Outside+"/canary", unix.O_PATH, 0)
		if err != nil {
			return err
		}
		return errors.Join(unix.Linkat(fd, "", unix.AT_FDCWD, t.Inside+"/hard2", unix.AT_EMPTY_PATH), write(t.Inside+"/hard2"))
	}, false},
	{"chmod a file outside", func(t target) error { return os.Chmod(t.Outside+"/canary", 0o777) }, true},
	{"chmod it by fchmodat2", func(t target) error {
		fd, err := unix.Open(t.Outside+"/canary", unix.O_PATH, 0)
		if err != nil {
			return err
		}
		return call(unix.SYS_FCHMODAT2, uintptr(fd), text(""), 0o777, unix.AT_EMPTY_PATH)
	}, true},
	{"chown a file outside", func(t target) error { return os.Chown(t.Outside+"/canary", os.Getuid(), os.Getgid()) }, true},
	{"set the times of a file outside", func(t target) error { return os.Chtimes(t.Outside+"/canary", time.Unix(1, 0), time.Unix(1, 0)) }, true},
	{"give a file outside an attribute", func(t target) error { return unix.Setxattr(t.Outside+"/canary", "user.attacked", []byte("1"), 0) }, false},
	{"write what may be read", func(t target) error { return write(t.ReadOnly + "/canary") }, false},
	{"make a file beside what may be read", func(t target) error { return write(t.ReadOnly + "/new") }, false},
	{"chmod what may be read", func(t target) error { return os.Chmod(t.ReadOnly+"/canary", 0o777) }, true},
	{"set the times of what may be read, by descriptor", func(t target) error {
		f, err := os.Open(t.ReadOnly + "/canary")
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Futimes(int(f.Fd()), []unix.Timeval{{Sec: 1}, {Sec: 1}})
	}, true},
	{"move what may be read into what may be written", func(t target) error { return os.Rename(t.ReadOnly+"/canary", t.Inside+"/moved") }, false},
	{"write through a second link of what may be read", func(t target) error {
		return errors.Join(os.Link(t.ReadOnly+"/canary", t.Inside+"/hard3"), write(t.Inside+"/hard3"))
	}, false},
	{"watch a folder outside", func(t target) error {
		fd, err := unix.InotifyInit1(0)
		if err == nil {
			_, err = unix.InotifyAddWatch(fd, t.Outside, unix.IN_ALL_EVENTS)
		}
		return err
	}, false},
	{"list the mounts", func(target) error {
		request := [3]uint64{24, ^uint64(0), 0} // struct mnt_id_req: its size, and the root of the namespace
		var ids [64]uint64
		return call(unix.SYS_LISTMOUNT, uintptr(unsafe.Pointer(&request)), uintptr(unsafe.Pointer(&ids)), uintptr(len(ids)), 0)
	}, false},
	{"take a lease on what may be read", func(t target) error {
		f, err := os.Open(t.ReadOnly + "/canary")
		if err == nil {
			_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
		}
		return err
	}, false},
	{"be told of changes in what may be read", func(t target) error {
		f, err := os.Open(t.ReadOnly)
		if err == nil {
			_, err = unix.FcntlInt(f.Fd(), unix.F_NOTIFY, 4 /* DN_CREATE */)
		}
		return err
	}, false},
	{"write a program of the system", func(target) error { f, err := os.OpenFile("/usr/bin/env", os.O_WRONLY, 0); _ = f.Close(); return err }, false},

	// other processes
	{"signal a process", func(t target) error { return unix.Kill(t.Marker, unix.SIGKILL) }, false},
	{"signal its thread", func(t target) error { return unix.Tgkill(t.Marker, t.Marker, unix.SIGKILL) }, false},
	{"signal it by a descriptor", func(t target) error {
		fd, err := unix.PidfdOpen(t.Marker, 0)
		if err != nil {
			return err
		}
		return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}, false},
	{"trace it", func(t target) error { return unix.PtraceAttach(t.Marker) }, false},
	{"read its environment", func(t target) error { return read(fmt.Sprintf("/proc/%d/environ", t.Marker)) }, false},
	{"read its memory", func(t target) error {
		f, err := os.Open(fmt.Sprintf("/proc/%d/mem", t.Marker))
		_ = f.Close()
		return err
	}, false},
	{"limit it", func(t target) error { return unix.Prlimit(t.Marker, unix.RLIMIT_CPU, &unix.Rlimit{}, nil) }, false},
	{"slow it down", func(t target) error { return unix.Setpriority(unix.PRIO_PROCESS, t.Marker, 19) }, false},
	{"signal the supervisor", func(target) error { return unix.Kill(os.Getppid(), unix.SIGUSR1) }, true},
	{"read the memory of the supervisor", func(target) error {
		f, err := os.Open(fmt.Sprintf("/proc/%d/mem", os.Getppid()))
		_ = f.Close()
		return err
	}, false},
	{"take a file of the supervisor", func(target) error {
		for fd := range 16 {
			f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", os.Getppid(), fd), os.O_RDWR, 0)
			if err == nil {
				return f.Close()
			}
		}
		return errors.New("none")
	}, false},

	// network
	{"connect by TCP", func(t target) error {
		return send(unix.AF_INET, unix.SOCK_STREAM, &unix.SockaddrInet4{Port: t.TCP, Addr: local})
	}, false},
	{"send by UDP", func(t target) error {
		return send(unix.AF_INET, unix.SOCK_DGRAM, &unix.SockaddrInet4{Port: t.UDP, Addr: local})
	}, false},
	{"send by UDP over IPv6", func(t target) error {
		return send(unix.AF_INET6, unix.SOCK_DGRAM, &unix.SockaddrInet6{Port: t.UDP, Addr: [16]byte{10: 255, 11: 255, 12: 127, 15: 1}})
	}, false},
	{"listen", func(target) error { l, err := net.Listen("tcp", "127.0.0.1:0"); _ = l; return err }, false},
	{"connect to a socket outside", func(t target) error { return send(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: t.Path}) }, false},
	{"connect to a socket in a folder that may be read", func(t target) error {
		return send(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: t.ReadOnly + "/socket"})
	}, false},
	{"connect to an abstract socket", func(t target) error {
		return send(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: "@" + t.Abstract})
	}, false},
	{"send to a socket outside from a pair", func(t target) error {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendto(fds[0], []byte("attacked"), 0, &unix.SockaddrUnix{Name: t.Path})
	}, false},
	{"ask the kernel by netlink", func(target) error {
		_, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
		return err
	}, false},
	{"listen to all packets", func(target) error { _, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); return err }, false},
	{"call the hypervisor", func(target) error { _, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0); return err }, false},
	{"use the kernel's ciphers", func(target) error { _, err := unix.Socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0); return err }, false},

	// the confinement itself
	{"mount", func(t target) error { return unix.Mount("none", t.Inside, "tmpfs", 0, "") }, false},
	{"unmount", func(t target) error { return unix.Unmount(t.Inside, unix.MNT_DETACH) }, false},
	{"open a mount", func(t target) error { return call(unix.SYS_OPEN_TREE, ^uintptr(99), text(t.Inside), 1) }, false},
	{"change the root", func(t target) error { return unix.Chroot(t.Inside) }, false},
	{"make a user namespace", func(target) error { return unix.Unshare(unix.CLONE_NEWUSER) }, false},
	{"make a user namespace by clone", func(target) error {
		cmd := exec.Command("/bin/sh", "-c", ":")
		cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
		return cmd.Run()
	}, false},
	{"make a user namespace by clone3", func(target) error { return call(unix.SYS_CLONE3, 0, 0) }, false},
	{"join a namespace", func(target) error { return call(unix.SYS_SETNS, 0, 0) }, false},
	{"load a program into the kernel", func(target) error { return call(unix.SYS_BPF, 0, 0, 0) }, false},
	{"watch the processor", func(target) error { return call(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, 0) }, false},
	{"use io_uring", func(target) error { return call(unix.SYS_IO_URING_SETUP, 1, text(strings.Repeat(" ", 200))) }, false},
	{"use the keys of the kernel", func(target) error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true); return err }, false},
	{"handle page faults", func(target) error { return call(unix.SYS_USERFAULTFD, 1) }, false},
	{"hide memory in a file", func(target) error { _, err := unix.MemfdCreate("x", 0); return err }, false},
	{"hide memory in a segment", func(target) error { return call(unix.SYS_SHMGET, 0, 4096, 0o1600) }, false},
	{"raise the limit of processes", func(target) error {
		return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	}, false},
	{"raise the limit of memory", func(target) error {
		return unix.Prlimit(0, unix.RLIMIT_DATA, &unix.Rlimit{Cur: 1 << 40, Max: 1 << 40}, nil)
	}, false},
	{"raise the limit of open files", func(target) error { return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 4096, Max: 4096}) }, false},
	{"become another user", func(target) error { return unix.Setuid(1) }, false},
	{"be spared when memory is short", func(target) error { return os.WriteFile("/proc/self/oom_score_adj", []byte("-900"), 0) }, false},
	{"type for the terminal", func(target) error { return call(unix.SYS_IOCTL, 0, unix.TIOCSTI, text("x")) }, false},
}

// attacker runs all attacks and prints their results.
func attacker() {
	var t target
	if err := json.Unmarshal([]byte(os.Getenv("TARGET")), &t); err != nil {
		panic(err)
	}

	said := map[string]string{}
	for _, a := range attacks {
		said[a.name] = "done"
		if err := a.do(t); err != nil {
			said[a.name] = err.Error()
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		panic(err)
	}
}

func TestAttacks(t *testing.T) {
	unraced(t)
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		c, out := again(t, "attacker")
		base := t.TempDir()
		to := target{Outside: filepath.Join(base, "outside"), ReadOnly: filepath.Join(base, "readonly"), Inside: c.Dir, Parent: os.Getpid()}
		for _, dir := range []string{to.Outside, to.ReadOnly} {
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(dir+"/canary", []byte("canary"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}

		reached := to.listen(t)
		marker := exec.CommandContext(t.Context(), "sleep", "60")
		if err := marker.Start(); err != nil {
			t.Fatal(err)
		}

		to.Marker = marker.Process.Pid
		before := snapshot(t, to)

		raw, err := json.Marshal(to)
		if err != nil {
			t.Fatal(err)
		}

		c.Env, c.Read = append(c.Env, "TARGET="+string(raw)), append(c.Read, to.ReadOnly)
		res := run(t, s, c)
		var said map[string]string
		if err := json.Unmarshal(out.Bytes(), &said); err != nil || res.Exit != 0 {
			t.Fatalf("%+v: %v in\n%s", res, err, out)
		}

		for _, a := range attacks {
			if said[a.name] == "done" && !a.heard {
				t.Errorf("it could %s", a.name)
			}
			t.Logf("%-50s %s", a.name, said[a.name])
		}

		if after := snapshot(t, to); !slices.Equal(before, after) {
			t.Errorf("outside was %s, and is %s", before, after)
		}
		if n := reached.Load(); n != 0 {
			t.Errorf("%d messages arrived", n)
		}
		if marker.Process.Kill() != nil || marker.Wait() == nil || marker.ProcessState.UserTime()+marker.ProcessState.SystemTime() > time.Minute {
			t.Error("the process outside was ended")
		}
	})
}

// caller tries to connect to all listeners.
func caller() {
	var t target
	if err := json.Unmarshal([]byte(os.Getenv("TARGET")), &t); err != nil {
		panic(err)
	}

	fmt.Println(send(unix.AF_INET, unix.SOCK_STREAM, &unix.SockaddrInet4{Port: t.TCP, Addr: local}))
	fmt.Println(send(unix.AF_INET, unix.SOCK_DGRAM, &unix.SockaddrInet4{Port: t.UDP, Addr: local}))
	for _, name := range []string{t.Path, t.ReadOnly + "/socket", "@" + t.Abstract} {
		fmt.Println(send(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: name}))
	}
}

// TestNetworkThatIsGranted checks that a granted network allows TCP and UDP, but no sockets in the
// file system.
func TestNetworkThatIsGranted(t *testing.T) {
	unraced(t)
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		to := target{Outside: t.TempDir(), ReadOnly: t.TempDir()}
		reached := to.listen(t)
		raw, err := json.Marshal(to)
		if err != nil {
			t.Fatal(err)
		}

		c, out := again(t, "caller", "TARGET="+string(raw))
		c.Read, c.Network = append(c.Read, to.ReadOnly, to.Outside), true
		run(t, s, c)
		if want := "<nil>\n<nil>\npermission denied\npermission denied\npermission denied\n"; out.String() != want {
			t.Errorf("it said\n%s", out)
		}

		until(t, "two messages", func() bool { return reached.Load() == 2 })
	})
}

// listen opens the targets of the network attacks and counts connections and messages.
func (to *target) listen(t *testing.T) *atomic.Int32 {
	t.Helper()
	var arrived atomic.Int32
	to.Path, to.Abstract = filepath.Join(to.Outside, "socket"), fmt.Sprintf("rouse-test-%d", time.Now().UnixNano())
	for _, address := range [][2]string{{"tcp", "127.0.0.1:0"}, {"unix", to.Path}, {"unix", filepath.Join(to.ReadOnly, "socket")}, {"unix", "@" + to.Abstract}} {
		l, err := net.Listen(address[0], address[1])
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { l.Close() })
		if tcp, ok := l.Addr().(*net.TCPAddr); ok {
			to.TCP = tcp.Port
		}

		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				arrived.Add(1)
				conn.Close()
			}
		}()
	}

	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { udp.Close() })
	to.UDP = udp.LocalAddr().(*net.UDPAddr).Port
	go func() {
		for b := make([]byte, 100); ; {
			if _, _, err := udp.ReadFrom(b); err != nil {
				return
			}
			arrived.Add(1)
		}
	}()

	return &arrived
}

// snapshot returns the state that attacks must not change.
func snapshot(t *testing.T, to target) []string {
	t.Helper()
	var out []string
	for _, dir := range []string{to.Outside, to.ReadOnly} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}

			var stat unix.Stat_t
			if err := unix.Lstat(path, &stat); err != nil {
				return err
			}

			content, _ := os.ReadFile(path)
			attributes := make([]byte, 1000)
			n, _ := unix.Listxattr(path, attributes)
			out = append(out, fmt.Sprintf("%s %o %d %d %d %v %q %q", path, stat.Mode, stat.Uid, stat.Nlink, stat.Size, stat.Mtim, content, attributes[:max(n, 0)]))

			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	nice, err := unix.Getpriority(unix.PRIO_PROCESS, to.Marker)
	if err != nil {
		t.Fatal(err)
	}

	var limit unix.Rlimit
	if err := unix.Prlimit(to.Marker, unix.RLIMIT_CPU, nil, &limit); err != nil {
		t.Fatal(err)
	}

	return append(out, strconv.Itoa(nice), fmt.Sprint(limit), fmt.Sprint(unix.Kill(to.Marker, 0)))
}

func TestForeignCallsEndTheCommand(t *testing.T) {
	unraced(t)
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		if _, err := exec.LookPath("python3"); err != nil {
			t.Skip("python3 is not installed")
		}

		c, out := script(t, "")
		c.Argv = []string{"python3", "-c", "import ctypes; ctypes.CDLL(None).syscall(0x40000000 + 39)"}
		if res := run(t, s, c); res.Signal != "SIGSYS" {
			t.Errorf("it ended with %+v\n%s", res, out)
		}
	})
}
