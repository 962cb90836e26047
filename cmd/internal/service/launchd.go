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
	"sync"
	"text/template"
	"time"
)

// launchd runs services as agents of the user's session on macOS.
type launchd struct{ byLibrary }

// plistTemplate is the description of a service. KeepAlive starts it again after it has failed and not after it has ended well.
var plistTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("plist").Funcs(template.FuncMap{"xml": escapeXML, "seconds": func(d time.Duration) int { return int(d.Seconds()) }}).Parse(`<?xml version="1.0" encoding="UTF-8"?>
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
`))
})

func escapeXML(text string) (string, error) {
	var out strings.Builder
	err := xml.EscapeText(&out, []byte(text))
	return out.String(), err
}

// Title implements Manager.
func (launchd) Title() string { return "launchd" }

// File implements Manager.
func (launchd) File(s Spec) (string, error) {
	home, err := os.UserHomeDir()
	return filepath.Join(home, "Library", "LaunchAgents", s.Name+".plist"), err
}

// Render implements Manager.
func (launchd) Render(s Spec) (string, error) {
	if err := s.check(); err != nil {
		return "", err
	}

	var out strings.Builder
	err := plistTemplate().Execute(&out, struct {
		Spec
		Marker    string
		Arguments []string
	}{s, s.marker(), s.arguments(true)})
	return out.String(), err
}

var launchdPID = regexp.MustCompile(`"PID" = ([0-9]+);`)

// State implements Manager.
func (m launchd) State(ctx context.Context, s Spec) (State, error) {
	file, err := m.File(s)
	if err != nil {
		return State{}, err
	}
	_, err = os.Stat(file)
	st := State{Known: err == nil, Enabled: err == nil, Text: "not loaded"}

	// It fails for what is not loaded, and says nothing else of use then.
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

// Logs implements Manager.
func (launchd) Logs(ctx context.Context, s Spec, o LogOptions) error {
	return tail(ctx, s.LogFile(), o)
}

// Environment implements Manager: little more than nothing.
func (launchd) Environment(context.Context) (map[string]string, error) {
	return map[string]string{"HOME": os.Getenv("HOME"), "USER": os.Getenv("USER"), "PATH": os.Getenv("PATH")}, nil
}

// Hints implements Manager.
func (launchd) Hints(Spec) []string {
	return []string{"it begins when you log in and ends when you log out", "launchd keeps no socket while the daemon is started again: who asks in these seconds is refused"}
}
