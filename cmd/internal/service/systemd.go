package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	kardianos "github.com/kardianos/service"
)

// systemdManager runs services as systemd user units.
type systemdManager struct{ byLibrary }

// unitTemplate is the template of a unit. docs/operate/service.md explains each line.
const unitTemplate = `# {{.Marker}}
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
`

func (systemdManager) Title() string { return "systemd" }

func (systemdManager) File(s Spec) (string, error) {
	home, err := os.UserHomeDir() // as the library does
	return filepath.Join(home, ".config", "systemd", "user", s.Name+".service"), err
}

func (systemdManager) Render(s Spec) (string, error) {
	if strings.ContainsAny(s.Program, "\"'\\") {
		return "", fmt.Errorf("systemd takes no program whose path has quotes or backslashes (%s); move it elsewhere", s.Program)
	}
	return render(s, unitTemplate, struct {
		Spec
		Marker, HomeText, ProgramText, PathVariable string
		Arguments                                   []string
	}{s, s.marker(), specifiers.Replace(s.Home), specifiers.Replace(s.Program), "PATH=" + s.Path, s.arguments(false)})
}

func (m systemdManager) Install(s Spec, text string) error {
	file, err := m.File(s)
	if err != nil {
		return err
	}
	env, err := m.Environment(context.Background())
	if err != nil {
		return err
	}

	// The library always writes to ~/.config. systemd must look for units there.
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

// specifiers escapes systemd specifiers. In the program's path, only the percent sign has a special
// meaning.
var specifiers = strings.NewReplacer("%", "%%")

// quoteUnit quotes a word so that systemd neither splits nor expands it.
func quoteUnit(word string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`).Replace(word) + `"`
}

// shown lists the unit properties State queries.
const shown = "LoadState,UnitFileState,ActiveState,SubState,MainPID,NRestarts,StatusText,StateChangeTimestamp"

func (systemdManager) State(ctx context.Context, s Spec) (State, error) {
	out, err := systemctl(ctx, "show", s.Name+".service", "--property="+shown)
	if err != nil {
		return State{}, err
	}

	is := variables(out)
	st := State{
		Known: is["LoadState"] != "" && is["LoadState"] != "not-found", Enabled: is["UnitFileState"] == "enabled",
		Text: fmt.Sprintf("%s (%s)", is["ActiveState"], is["SubState"]), Says: is["StatusText"],
	}
	st.PID, _ = strconv.Atoi(is["MainPID"]) // 0 if there is no process
	st.Running = st.PID != 0 || is["ActiveState"] == "activating"
	st.Restarts, _ = strconv.Atoi(is["NRestarts"])
	// systemctl prints the short name of the local time zone.
	if since, err := time.ParseInLocation("Mon 2006-01-02 15:04:05 MST", is["StateChangeTimestamp"], time.Local); err == nil {
		st.Since = since
	}
	return st, nil
}

// systemctl runs systemctl for the user's systemd instance.
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
	why := cmp.Or(strings.TrimSpace(said.String()), err.Error())
	return "", fmt.Errorf("your systemd cannot be asked: %s; it runs while you are logged in, so log in as yourself, not with su or sudo (loginctl enable-linger keeps it on)", strings.ReplaceAll(why, "\n", " "))
}

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

func (systemdManager) Environment(ctx context.Context) (map[string]string, error) {
	text, err := systemctl(ctx, "show-environment")
	if err != nil {
		return nil, err
	}

	out := variables(text)
	for key, value := range out {
		// Unusual values are printed as $'…'. Removing the quotes is enough: only the existence of
		// a value matters.
		out[key] = strings.TrimSuffix(strings.TrimPrefix(value, "$'"), "'")
	}
	return out, nil
}

// variables parses lines of the form KEY=value.
func variables(lines string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(lines) {
		if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			out[key] = value
		}
	}
	return out
}

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

// byLibrary installs and controls services with kardianos/service. The platform is set explicitly:
// the library detects it from the first process, which is wrong in containers.
type byLibrary struct{ platform string }

func (b byLibrary) do(s Spec, text string, what func(kardianos.Service) error) error {
	for _, system := range kardianos.AvailableSystems() {
		if system.String() != b.platform {
			continue
		}
		l, err := system.New(nil, &kardianos.Config{
			Name: s.Name, Executable: s.Program,
			// The library's templates insert these values, so the file gets exactly the text that
			// was shown.
			Description: text, UserName: text,
			Option: kardianos.KeyValue{"UserService": true, "SystemdScript": "{{Description}}", "LaunchdConfig": "{{UserName}}"},
		})
		if err != nil {
			return err
		}
		return what(l)
	}
	return fmt.Errorf("there is no %s on this system", b.platform)
}

func (b byLibrary) Install(s Spec, text string) error {
	return b.do(s, text, kardianos.Service.Install)
}
func (b byLibrary) Uninstall(s Spec) error { return b.do(s, "", kardianos.Service.Uninstall) }
func (b byLibrary) Start(s Spec) error     { return b.do(s, "", kardianos.Service.Start) }
func (b byLibrary) Stop(s Spec) error      { return b.do(s, "", kardianos.Service.Stop) }
func (b byLibrary) Restart(s Spec) error   { return b.do(s, "", kardianos.Service.Restart) }
