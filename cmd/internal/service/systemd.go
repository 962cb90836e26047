package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"
)

// systemdManager runs services as user units of systemd.
type systemdManager struct{ byLibrary }

// unitTemplate is the description of a service. What each line is for stands in docs/service.md.
var unitTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("unit").Funcs(template.FuncMap{"quote": quoteUnit, "seconds": func(d time.Duration) int { return int(d.Seconds()) }}).Parse(`# {{.Marker}}
# Changes of your own belong in: systemctl --user edit {{.Name}}.service
[Unit]
Description=rouse wakes AI agents (home {{.HomeText}})
After=dbus.socket graphical-session.target
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart="{{.ProgramText}}"{{range .Arguments}} {{quote .}}{{end}}
ExecReload=kill -HUP $MAINPID
Environment=DBUS_SESSION_BUS_ADDRESS=unix:path=%t/bus
{{- if .Path}}
Environment={{quote .PathVariable}}
{{- end}}
Restart=on-failure
RestartSec=1
TimeoutStartSec=infinity
TimeoutStopSec={{seconds .Stop}}
WatchdogSec=300
KillMode=mixed
OOMPolicy=continue

[Install]
WantedBy=default.target
`))
})

// Title implements Manager.
func (systemdManager) Title() string { return "systemd" }

// File implements Manager.
func (systemdManager) File(s Spec) (string, error) {
	home, err := os.UserHomeDir() // as the library does
	return filepath.Join(home, ".config", "systemd", "user", s.Name+".service"), err
}

// Render implements Manager.
func (systemdManager) Render(s Spec) (string, error) {
	if err := s.check(); err != nil {
		return "", err
	}
	if strings.ContainsAny(s.Program, "\"'\\") {
		return "", fmt.Errorf("systemd takes no program whose path has quotes or backslashes (%s); move it elsewhere", s.Program)
	}

	var out strings.Builder
	err := unitTemplate().Execute(&out, struct {
		Spec
		Marker, HomeText, ProgramText, PathVariable string
		Arguments                                   []string
	}{s, s.marker(), specifiers.Replace(s.Home), specifiers.Replace(s.Program), "PATH=" + s.Path, s.arguments(false)})
	return out.String(), err
}

// Install implements Manager.
func (m systemdManager) Install(s Spec, text string) error {
	file, err := m.File(s)
	if err != nil {
		return err
	}
	env, err := m.Environment(context.Background())
	if err != nil {
		return err
	}

	// It would not find what is written elsewhere, and the library writes there alone.
	folder := filepath.Join(env["HOME"], ".config")
	if own := env["XDG_CONFIG_HOME"]; own != "" {
		folder = own
	}
	if folder = filepath.Join(folder, "systemd", "user"); folder != filepath.Dir(file) {
		return fmt.Errorf("it looks for units in %s, and not in %s (its HOME or XDG_CONFIG_HOME is another than that of this shell)", folder, filepath.Dir(file))
	}
	if err := m.byLibrary.Install(s, text); err != nil {
		return fmt.Errorf("%w; what it says: systemctl --user enable %s", err, file)
	}
	return nil
}

// specifiers stand for something in a unit, unless they are doubled. In the path of the program nothing else does.
var specifiers = strings.NewReplacer("%", "%%")

// quoteUnit writes a word so that systemd reads it as it is: neither split, nor expanded.
func quoteUnit(word string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`).Replace(word) + `"`
}

// shown are the properties of a unit that State asks for.
const shown = "LoadState,UnitFileState,ActiveState,SubState,MainPID,NRestarts,StatusText,StateChangeTimestamp"

// State implements Manager.
func (systemdManager) State(ctx context.Context, s Spec) (State, error) {
	out, err := systemctl(ctx, "show", s.Name+".service", "--property="+shown)
	if err != nil {
		return State{}, err
	}

	is := map[string]string{}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			is[key] = value
		}
	}
	st := State{
		Known: is["LoadState"] != "" && is["LoadState"] != "not-found", Enabled: is["UnitFileState"] == "enabled",
		Text: fmt.Sprintf("%s (%s)", is["ActiveState"], is["SubState"]), Says: is["StatusText"],
	}
	st.PID, _ = strconv.Atoi(is["MainPID"]) // 0 where there is none
	st.Running = st.PID != 0 || is["ActiveState"] == "activating"
	st.Restarts, _ = strconv.Atoi(is["NRestarts"])
	// The zone is that of this machine, by which its short name is understood.
	if since, err := time.ParseInLocation("Mon 2006-01-02 15:04:05 MST", is["StateChangeTimestamp"], time.Local); err == nil {
		st.Since = since
	}
	return st, nil
}

// systemctl asks the user's own systemd.
func systemctl(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "systemctl", append([]string{"--user"}, args...)...)
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	if err == nil {
		return string(out), nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("there is no systemd here (no systemctl in $PATH); have whatever starts programs on this machine run: rouse serve")
	}
	why := strings.TrimSpace(said.String())
	if why == "" {
		why = err.Error()
	}
	return "", fmt.Errorf("your systemd cannot be asked: %s; it runs while you are logged in, so log in as yourself, not with su or sudo (loginctl enable-linger keeps it on)", strings.ReplaceAll(why, "\n", " "))
}

// Logs implements Manager.
func (systemdManager) Logs(ctx context.Context, s Spec, o LogOptions) error {
	args := []string{"--user", "--unit=" + s.Name + ".service", "--output=cat", "--no-pager", "--lines=" + strconv.Itoa(o.Lines)}
	if o.Follow {
		args = append(args, "--follow")
	}
	c := exec.CommandContext(ctx, "journalctl", args...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.Stdout, c.Stderr = o.Out, o.Err
	if err := c.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("the journal cannot be read: %w", err)
	}
	return nil
}

// Environment implements Manager.
func (systemdManager) Environment(ctx context.Context) (map[string]string, error) {
	text, err := systemctl(ctx, "show-environment")
	if err != nil {
		return nil, err
	}

	out := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			// An odd value is written as $'…'; that there is one is what matters.
			out[key] = strings.TrimSuffix(strings.TrimPrefix(value, "$'"), "'")
		}
	}
	return out, nil
}

// Hints implements Manager.
func (systemdManager) Hints(Spec) []string {
	me, err := user.Current()
	if err != nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join("/var/lib/systemd/linger", me.Username)); err == nil {
		return nil
	}
	return []string{"it begins when you log in and ends when you log out; to have it from when the machine starts, and without you: loginctl enable-linger " + me.Username}
}
