//go:build unix

package owner

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// Nobody is a user without processes and files in these tests.
const nobody = 65534

// TestMain can turn this binary into a process that connects to a socket or listens on it.
func TestMain(m *testing.M) {
	switch socket := os.Getenv("TEST_SOCKET"); os.Getenv("TEST_ROLE") {
	case "dial":
		c, err := net.Dial("unix", socket)
		if err == nil {
			_, _ = fmt.Fprintln(c, "approve 1") // fails if the connection was closed
			text, _ := bufio.NewReader(c).ReadString('\n')
			fmt.Printf("heard %q\n", text)
		}
	case "listen":
		l, err := net.Listen("unix", socket)
		if err == nil {
			err = os.Chmod(socket, 0o777)
		}
		if err != nil {
			panic(err)
		}

		fmt.Println("listening")
		c, err := l.Accept()
		if err == nil {
			text, _ := bufio.NewReader(c).ReadString('\n')
			fmt.Printf("heard %q\n", text)
		}
	default:
		os.Exit(m.Run())
	}
}

// as prepares a process of this binary that connects or listens as another user.
func as(t *testing.T, role, socket string, uid int) *exec.Cmd {
	t.Helper()
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("this system does not tell who is at the other end")
	}
	if uid != os.Geteuid() && os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(filepath.Dir(socket), "program") // a folder accessible to the other user
	// Another process writes the copy. If this process did, a child of a parallel test could
	// inherit the open file, and the copy could not be executed.
	if out, err := exec.CommandContext(t.Context(), "cp", self, program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	c := exec.CommandContext(t.Context(), program)
	c.Env = append(os.Environ(), "TEST_ROLE="+role, "TEST_SOCKET="+socket)
	if uid != os.Geteuid() {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return c
}

// open returns a folder in which every user can create names.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "own-") //nolint:usetesting // a folder that others may enter, with a short name
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A connection of another user is closed before any data is exchanged. The user's own process is
// served.
func TestListener(t *testing.T) {
	t.Parallel()
	for _, uid := range []int{os.Geteuid(), nobody} {
		socket := filepath.Join(open(t), "s")
		plain, err := net.Listen("unix", socket)
		if err == nil {
			err = os.Chmod(socket, 0o777) // so that only the user check protects the socket
		}
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()

		refused, accepted := make(chan error, 1), make(chan string, 1)
		l := Listener{Listener: plain, Refused: func(err error) { refused <- err }}
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				text, _ := bufio.NewReader(c).ReadString('\n')
				accepted <- text
				_, _ = fmt.Fprintln(c, "done")
				c.Close()
			}
		}()

		out, err := as(t, "dial", socket, uid).CombinedOutput()
		if err != nil {
			t.Fatalf("%v %s", err, out)
		}

		if uid == os.Geteuid() {
			if got := <-accepted; got != "approve 1\n" || !strings.Contains(string(out), `heard "done\n"`) {
				t.Errorf("%q, %s", got, out)
			}
			continue
		}

		var peer *PeerError
		if err := <-refused; !errors.As(err, &peer) || peer.Uid != nobody || string(out) != "heard \"\"\n" {
			t.Errorf("%v, %s", err, out)
		}
		select {
		case got := <-accepted:
			t.Errorf("%q was heard", got)
		default:
		}
	}
}

// A listener of another user is detected before any data is sent.
func TestCheckPeer(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(open(t), "s")
	c := as(t, "listen", socket, nobody)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}

	lines := bufio.NewScanner(out)
	lines.Scan()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}

	var peer *PeerError
	if err := CheckPeer(conn); !errors.As(err, &peer) || peer.Uid != nobody {
		t.Errorf("%v", err)
	}
	conn.Close()
	if lines.Scan(); lines.Text() != `heard ""` {
		t.Errorf("%s", lines.Text())
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}

// A private folder is created. A link, a folder with access for others, or another user's is
// refused.
func TestPrivate(t *testing.T) {
	t.Parallel()
	dir := open(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Mkdir(at("wide"), 0o755), os.Mkdir(at("own"), 0o700), os.Symlink(at("own"), at("link")), os.WriteFile(at("file"), nil, 0o600), os.Mkdir(at("theirs"), 0o700)); err != nil {
		t.Fatal(err)
	}

	says := map[string]string{"new": "", "own": "", "wide": "is open to others (mode 0755)", "link": "is no folder but a link", "file": "is no folder but a file"}
	if os.Geteuid() == 0 {
		says["theirs"] = "belongs to another user (number 65534)"
		if err := os.Chown(at("theirs"), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range says {
		if err := Private(at(name)); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if info, err := os.Stat(at("new")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
}

// A home that others could change is refused. A home that others can only read is accepted.
func TestCheckHome(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Mkdir(at("fine"), 0o755), os.Mkdir(at("all"), 0o755), os.Chmod(at("all"), 0o777), os.Mkdir(at("all/in"), 0o700), os.Symlink(at("all/in"), at("link")), os.Mkdir(at("theirs"), 0o755)); err != nil {
		t.Fatal(err)
	}

	says := map[string]string{"fine": "", "missing": "", "all": "may be written by everybody (mode 0777), so that somebody else could decide what rouse does; take that right away with: rouse doctor --fix, or choose another with --home",
		"all/in": "take that right away with: chmod go-w " + at("all") + ", or choose another", "link": "lies in " + at("all")}
	if os.Geteuid() == 0 {
		says["theirs"] = "belongs to another user (number 65534)"
		if err := os.Chown(at("theirs"), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range says {
		if err := CheckHome(at(name)); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// New folders get the usual mode regardless of the umask. Existing folders keep their mode.
func TestMakeFolders(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(formerUmask, "027")
	if err := os.Mkdir(filepath.Join(dir, "a"), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := MakeFolders(filepath.Join(dir, "a", "b", "c")); err != nil {
		t.Fatal(err)
	}

	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()

	if err := errors.Join(MakeFoldersIn(root, "a/d/e"), root.WriteFile("a/f", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := MakeFoldersIn(root, "a/f/g"); err == nil {
		t.Error("a folder was made in a file")
	}

	for name, want := range map[string]os.FileMode{"a": 0o711, "a/b": 0o750, "a/b/c": 0o750, "a/d": 0o750, "a/d/e": 0o750} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, want %v (%v)", name, info.Mode(), want, err)
		}
	}
	if got := ApplyUmask(0o644); got != 0o640 {
		t.Errorf("%#o", got)
	}
}
