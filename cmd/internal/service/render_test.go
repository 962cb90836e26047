package service

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

// odd returns a spec with paths that contain the special characters of each format.
var odd = Spec{Name: "rouse-books-0a1b2c", Program: "/opt/r o/rouse%n", Config: `/home/me/a "b"/$HOME\rouse.yaml`, Home: "/home/me/<&>--'x'/.rouse", Path: "/usr/local/bin:/usr/bin", Stop: 90 * time.Second, User: `BOX\me`}

// The descriptions for each manager equal the golden files.
func TestRender(t *testing.T) {
	t.Parallel()
	for system, golden := range map[string]string{"linux": "unit.service", "darwin": "agent.plist", "windows": "task.xml"} {
		m, err := For(system)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Render(odd)
		if err != nil {
			t.Fatal(err)
		}

		path := filepath.Join("testdata", golden)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != strings.ReplaceAll(string(want), "\r\n", "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", golden, got, want)
		}
	}
	if _, err := For("plan9"); err == nil {
		t.Error("there is a manager for plan9")
	}
}

// The unit contains the lines that docs/operate/service.md promises.
func TestUnit(t *testing.T) {
	t.Parallel()
	got, err := systemdManager{}.Render(odd)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Type=notify", "WatchdogSec=", "Restart=on-failure", "StartLimitIntervalSec=0", "KillMode=mixed", "TimeoutStopSec=90",
		"Environment=DBUS_SESSION_BUS_ADDRESS=unix:path=%t/bus", "WantedBy=default.target", "After=dbus.socket graphical-session.target",
		`ExecStart="/opt/r o/rouse%%n" "serve" "--config" "/home/me/a \"b\"/$$HOME\\rouse.yaml" "--home" "/home/me/<&>--'x'/.rouse"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	// These would prevent bubblewrap from confining the agents' programs.
	for _, not := range []string{"NoNewPrivileges", "RestrictNamespaces", "ProtectSystem", "PrivateUsers", "SystemCallFilter", "MemoryDenyWriteExecute"} {
		if strings.Contains(got, not) {
			t.Errorf("%s in\n%s", not, got)
		}
	}
}

// The XML files of the other managers decode to the original values.
func TestXML(t *testing.T) {
	t.Parallel()
	for _, m := range []Manager{launchd{}, taskScheduler{}} {
		got, err := m.Render(odd)
		if err != nil {
			t.Fatal(err)
		}

		var texts []string
		d := xml.NewDecoder(strings.NewReader(got))
		d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil } // converted to UTF-16 when it is written
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, got)
			}
			if text, ok := token.(xml.CharData); ok {
				texts = append(texts, string(text))
			}
		}
		all := strings.Join(texts, "\n")
		for _, want := range []string{odd.Program, odd.Home, odd.LogFile()} {
			if !strings.Contains(all, want) {
				t.Errorf("%s: no %s in\n%s", m.Title(), want, all)
			}
		}
	}
}

// systemd-analyze accepts the unit. .ci/run sets ROUSE_TEST_SYSTEMD.
func TestSystemdAnalyze(t *testing.T) {
	if os.Getenv("ROUSE_TEST_SYSTEMD") == "" {
		t.Skip("ROUSE_TEST_SYSTEMD is not set; .ci/run sets it")
	}

	dir := t.TempDir()
	s := odd
	s.Program = filepath.Join(dir, "a %n $x", "rouse")
	if err := os.MkdirAll(filepath.Dir(s.Program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Program, []byte("#!/bin/sh\n"), 0o755); err != nil { // only needs to exist; it is not run
		t.Fatal(err)
	}
	text, err := systemdManager{}.Render(s)
	if err != nil {
		t.Fatal(err)
	}

	verify := func(text string) string {
		unit := filepath.Join(dir, s.Name+".service")
		if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), "systemd-analyze", "--user", "verify", unit)
		c.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir)
		out, err := c.CombinedOutput()
		if err != nil {
			return string(out) + err.Error()
		}
		return string(out)
	}
	if said := verify(text); said != "" {
		t.Error(said)
	}
	if said := verify(strings.Replace(text, "Restart=on-failure", "Restart=sometimes", 1)); said == "" {
		t.Error("a unit that is wrong is found right")
	}
}

// Values that a description cannot contain are rejected.
func TestRefused(t *testing.T) {
	t.Parallel()
	quoted := odd
	quoted.Program = `/opt/"r"/rouse`
	if _, err := (systemdManager{}).Render(quoted); err == nil || !strings.Contains(err.Error(), "quotes or backslashes") {
		t.Error(err)
	}
	for want, change := range map[string]func(*Spec){
		"cannot be the name":        func(s *Spec) { s.Name = "../x" },
		"needs a full path":         func(s *Spec) { s.Program = "rouse" },
		"a control character":       func(s *Spec) { s.Config = "/a\nExecStart=/bin/evil" },
		"the home needs a full pat": func(s *Spec) { s.Home = "" },
	} {
		s := odd
		change(&s)
		for _, m := range []Manager{systemdManager{}, launchd{}, taskScheduler{}} {
			if _, err := m.Render(s); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", m.Title(), err, want)
			}
		}
	}
}

// Each home has a unique, stable service name.
func TestDefaultName(t *testing.T) {
	t.Parallel()
	const usual = "/home/me/.rouse"
	if got := DefaultName(usual, usual); got != "rouse" {
		t.Error(got)
	}
	seen := map[string]bool{}
	for home, begins := range map[string]string{"/home/me/books/.rouse": "rouse-books-", "/srv/Täx 2026/home": "rouse-t-x-2026-", "/home/you/books/.rouse": "rouse-books-", "/": "rouse-", "/x/" + strings.Repeat("y", 200): "rouse-yyyy"} {
		got := DefaultName(home, usual)
		if !strings.HasPrefix(got, begins) || CheckName(got) != nil || seen[got] || got != DefaultName(home, usual) {
			t.Errorf("%s: %s", home, got)
		}
		seen[got] = true
	}
}

func TestParseTask(t *testing.T) {
	t.Parallel()
	st, err := parseTask([]byte("\"\\rouse\",\"N/A\",\"Wird ausgeführt\"\r\n"))
	if err != nil || !st.Known || st.Text != "Wird ausgeführt" {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := parseTask(nil); err == nil {
		t.Error("nothing is understood")
	}
	if got := quoteWindows(`C:\a b\`); got != `"C:\a b\\"` {
		t.Error(got)
	}
}
