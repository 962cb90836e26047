package service

import (
	"context"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// launchd runs services as agents of the user's session on macOS.
type launchd struct{ byLibrary }

// plistTemplate is the template of a launch agent. KeepAlive restarts the daemon only after a
// failure.
const plistTemplate = `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- {{.Marker}} -->
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>{{xml .Name}}</string>
	<key>ProgramArguments</key>
	<array>
		<string>{{xml .Program}}</string>
{{- range .Arguments}}
		<string>{{xml .}}</string>
{{- end}}
	</array>
{{- if .Path}}
	<key>EnvironmentVariables</key>
	<dict>
		<key>PATH</key>
		<string>{{xml .Path}}</string>
	</dict>
{{- end}}
	<key>LimitLoadToSessionType</key>
	<string>Aqua</string>
	<key>ProcessType</key>
	<string>Standard</string>
	<key>RunAtLoad</key>
	<true/>
	<key>KeepAlive</key>
	<dict>
		<key>SuccessfulExit</key>
		<false/>
	</dict>
	<key>ThrottleInterval</key>
	<integer>10</integer>
	<key>ExitTimeOut</key>
	<integer>{{seconds .Stop}}</integer>
	<key>SoftResourceLimits</key>
	<dict>
		<key>NumberOfFiles</key>
		<integer>4096</integer>
	</dict>
	<key>StandardOutPath</key>
	<string>/dev/null</string>
	<key>StandardErrorPath</key>
	<string>/dev/null</string>
</dict>
</plist>
`

func escapeXML(text string) (string, error) {
	var out strings.Builder
	err := xml.EscapeText(&out, []byte(text))
	return out.String(), err
}

func (launchd) Title() string { return "launchd" }

func (launchd) File(s Spec) (string, error) {
	home, err := os.UserHomeDir()
	return filepath.Join(home, "Library", "LaunchAgents", s.Name+".plist"), err
}

func (launchd) Render(s Spec) (string, error) {
	return render(s, plistTemplate, struct {
		Spec
		Marker    string
		Arguments []string
	}{s, s.marker(), s.arguments(true)})
}

var launchdPID = regexp.MustCompile(`"PID" = ([0-9]+);`)

func (m launchd) State(ctx context.Context, s Spec) (State, error) {
	file, err := m.File(s)
	if err != nil {
		return State{}, err
	}
	_, err = os.Stat(file)
	st := State{Known: err == nil, Enabled: err == nil, Text: "not loaded"}

	// launchctl fails if the service is not loaded.
	out, err := exec.CommandContext(ctx, "launchctl", "list", s.Name).Output()
	if err != nil {
		return st, nil //nolint:nilerr // not loaded
	}
	st.Known, st.Text = true, "loaded"
	if found := launchdPID.FindSubmatch(out); found != nil {
		st.PID, _ = strconv.Atoi(string(found[1]))
		st.Running, st.Text = true, "running"
	}
	return st, nil
}

func (launchd) Logs(ctx context.Context, s Spec, o LogOptions) error {
	return tail(ctx, s.LogFile(), o)
}

// Environment implements Manager. launchd passes only a few variables.
func (launchd) Environment(context.Context) (map[string]string, error) {
	return map[string]string{"HOME": os.Getenv("HOME"), "USER": os.Getenv("USER"), "PATH": os.Getenv("PATH")}, nil
}

func (launchd) Hints(Spec) []string {
	return []string{"it begins when you log in and ends when you log out", "launchd keeps no socket while the daemon is started again: who asks in these seconds is refused"}
}
