package service

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf16"

	"rouse/internal/atomicfile"
)

// taskScheduler runs services as Windows tasks that start when the user logs in. A Windows service
// would run in a session without a desktop, where notices are invisible, and without the user's
// keyring.
type taskScheduler struct{}

// taskTemplate is the template of a task. 999 is the largest restart count that Windows accepts.
const taskTemplate = `<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo>
    <Description>rouse wakes AI agents. {{.Marker}}</Description>
  </RegistrationInfo>
  <Triggers>
    <LogonTrigger>
      <Enabled>true</Enabled>
      <UserId>{{xml .User}}</UserId>
    </LogonTrigger>
  </Triggers>
  <Principals>
    <Principal id="Author">
      <UserId>{{xml .User}}</UserId>
      <LogonType>InteractiveToken</LogonType>
      <RunLevel>LeastPrivilege</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <StartWhenAvailable>true</StartWhenAvailable>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <Priority>5</Priority>
    <RestartOnFailure>
      <Interval>PT1M</Interval>
      <Count>999</Count>
    </RestartOnFailure>
  </Settings>
  <Actions Context="Author">
    <Exec>
      <Command>{{xml .Program}}</Command>
      <Arguments>{{xml .Line}}</Arguments>
      <WorkingDirectory>{{xml .Home}}</WorkingDirectory>
    </Exec>
  </Actions>
</Task>
`

func (taskScheduler) Title() string { return "the Task Scheduler" }

// File implements Manager. The file is a copy of the description: Windows stores its own in another
// format.
func (taskScheduler) File(s Spec) (string, error) {
	return filepath.Join(s.Home, "service", s.Name+".xml"), nil
}

func (taskScheduler) Render(s Spec) (string, error) {
	var words []string
	for _, a := range s.arguments(true) {
		words = append(words, quoteWindows(a))
	}
	return render(s, taskTemplate, struct {
		Spec
		Marker, Line string
	}{s, s.marker(), strings.Join(words, " ")})
}

// quoteWindows quotes an argument for a Windows program. Windows paths contain no quotes, but a
// trailing backslash would escape the closing quote.
func quoteWindows(word string) string {
	end := len(word) - len(strings.TrimRight(word, `\`))
	return `"` + strings.ReplaceAll(word, `"`, `\"`) + strings.Repeat(`\`, end) + `"`
}

func (m taskScheduler) Install(s Spec, text string) (err error) {
	file, err := m.File(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}

	// schtasks relies on the encoding named in the first line.
	given := file + ".tmp"
	if err := atomicfile.Write(given, utf16File(text), 0o600); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(given)) }()
	if err := schtasks("/Create", "/TN", s.Name, "/XML", given, "/F"); err != nil {
		return err
	}
	return atomicfile.Write(file, []byte(text), 0o600)
}

func utf16File(text string) []byte {
	var out bytes.Buffer
	for _, unit := range append([]uint16{0xfeff}, utf16.Encode([]rune(text))...) {
		out.Write(binary.LittleEndian.AppendUint16(nil, unit))
	}
	return out.Bytes()
}

func (m taskScheduler) Uninstall(s Spec) error {
	file, err := m.File(s)
	if err == nil {
		err = schtasks("/Delete", "/TN", s.Name, "/F")
	}
	if err != nil {
		return err
	}
	return os.Remove(file)
}

func (taskScheduler) Start(s Spec) error     { return schtasks("/Run", "/TN", s.Name) }
func (taskScheduler) Stop(s Spec) error      { return schtasks("/End", "/TN", s.Name) }
func (m taskScheduler) Restart(s Spec) error { return errors.Join(m.Stop(s), m.Start(s)) }

// State implements Manager. The output of schtasks is localized, so it is shown but not
// interpreted.
func (m taskScheduler) State(ctx context.Context, s Spec) (State, error) {
	out, err := exec.CommandContext(ctx, "schtasks", "/Query", "/TN", s.Name, "/FO", "CSV", "/NH").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return State{}, err
	}
	if err != nil {
		return State{Text: "not there"}, nil //nolint:nilerr // schtasks fails if the task does not exist; its message is localized
	}
	return parseTask(out)
}

func parseTask(out []byte) (State, error) {
	row, err := csv.NewReader(bytes.NewReader(out)).Read()
	if err != nil || len(row) < 3 {
		return State{}, fmt.Errorf("what schtasks says is not understood: %q", out)
	}
	return State{Known: true, Enabled: true, Text: row[2]}, nil
}

func schtasks(args ...string) error {
	if out, err := exec.Command("schtasks", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("schtasks %s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}

func (taskScheduler) Logs(ctx context.Context, s Spec, o LogOptions) error {
	return tail(ctx, s.LogFile(), o)
}

// Environment implements Manager. It returns nil because a task has its user's variables.
func (taskScheduler) Environment(context.Context) (map[string]string, error) { return nil, nil }

func (taskScheduler) Hints(Spec) []string {
	return []string{"it begins when you log in and ends when you log out", "Windows ends it at once when it is stopped: runs that are on go on at the next start, as after a power cut"}
}
