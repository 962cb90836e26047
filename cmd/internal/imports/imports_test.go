package imports_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agent"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/imports"
)

var update = flag.Bool("update", false, "write the wanted files")

// check is the configuration check of rouse import, for a machine without any of the named paths.
func check(t testing.TB, dir string) func([]byte) ([]imports.Problem, error) {
	t.Helper()
	return checkIn(dir)
}

func checkIn(dir string) func([]byte) ([]imports.Problem, error) {
	home := filepath.Join(dir, "home")
	return func(text []byte) (out []imports.Problem, err error) {
		_, err = readText(dir, home, text)
		var wrong *config.Errors
		if err == nil || !errors.As(err, &wrong) {
			return nil, err
		}
		for _, p := range wrong.Problems {
			if !p.Warning {
				out = append(out, imports.Problem{Path: p.Path, Message: strings.ReplaceAll(p.Message, dir, "DIR")})
			}
		}
		return out, nil
	}
}

func readText(dir, home string, text []byte) (*config.Config, error) {
	getenv := func(name string) string { return map[string]string{"HOME": dir, "PATH": "/usr/bin:/bin"}[name] }
	return load.Config(yaml.Options{Path: filepath.Join(dir, "rouse.yaml"), Home: home, Text: text, Getenv: getenv}, agent.Specs())
}

// read converts files to a document. The directory name selects the format.
func read(t testing.TB, format string, files []imports.File) (*imports.Document, error) {
	t.Helper()
	switch format {
	case "crontab":
		return imports.Crontab(files, imports.CrontabOptions{}), nil
	case "systemd":
		return imports.Systemd(files, imports.SystemdOptions{Home: "/home/ann", User: "ann"}), nil
	case "dagu":
		return imports.Dagu(files)
	default:
		return imports.OpenClaw(files)
	}
}

// The output for each file of testdata equals the stored output, and rouse config check accepts it.
func TestImports(t *testing.T) {
	t.Parallel()
	cases := map[string][]string{}
	for _, pattern := range []string{"crontab/*.crontab", "systemd", "dagu/*.yaml", "openclaw/*.json", "openclaw/*.md"} {
		found, err := filepath.Glob(filepath.Join("testdata", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		format := strings.Split(pattern, "/")[0]
		cases[format] = append(cases[format], found...)
	}

	for format, paths := range cases {
		for _, path := range paths {
			t.Run(strings.TrimPrefix(filepath.ToSlash(path), "testdata/"), func(t *testing.T) {
				t.Parallel()
				var files []imports.File
				if format == "systemd" {
					found, skipped, err := imports.ReadFolder(path, ".timer", ".service")
					if err != nil || len(skipped) > 0 {
						t.Fatalf("%v, skipped %v", err, skipped)
					}
					files = found
				} else {
					one, err := imports.ReadFile(path, nil)
					if err != nil {
						t.Fatal(err)
					}
					files = append(files, one)
				}
				compare(t, format, filepath.Base(path), files)
			})
		}
	}
}

func compare(t *testing.T, format, name string, files []imports.File) {
	t.Helper()
	d, err := read(t, format, files)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	got, err := d.Settle(check(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := readText(dir, filepath.Join(dir, "home"), got)
	if err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	if len(cfg.Jobs) != len(d.Jobs()) {
		t.Errorf("%d jobs are written, %d were read", len(cfg.Jobs), len(d.Jobs()))
	}

	wanted := filepath.Join("testdata", "wanted", format+"-"+name+".yaml")
	if *update {
		if err := os.WriteFile(wanted, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(wanted)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is not what is written now; go test ./cmd/internal/imports -update, and look at the difference:\n%s", wanted, got)
	}
}

// A secret in an imported file does not appear in the output.
func TestSecretsAreWithheld(t *testing.T) {
	t.Parallel()
	for format, text := range map[string]string{
		"crontab": "API_TOKEN=hunter2secret\nDB_PASSWORD = \"hunter2secret\"\n0 1 * * * /usr/bin/true\n",
		"dagu":    "env: [{DB_PASSWORD: hunter2secret}]\nsteps: [{command: date}]\n",
		"openclaw": `{"jobs":[{"name":"p","schedule":{"kind":"every","everyMs":60000},"payload":{"kind":"command","argv":["df"],"env":{"API_KEY":"hunter2secret"}}},
			{"name":"q","schedule":{"kind":"moon"},"payload":{"kind":"command","argv":["df"],"env":{"API_KEY":"hunter2secret"}}}]}`,
	} {
		d, err := read(t, format, []imports.File{{Name: "f.yaml", Text: text}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Settle(check(t, t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(got), "hunter2secret") {
			t.Errorf("%s:\n%s", format, got)
		}
		if len(d.Jobs()) != 1 || !d.Jobs()[0].Off || !strings.Contains(string(got), "rouse secrets set") {
			t.Errorf("%s: the job runs without its secret, or nothing says so:\n%s", format, got)
		}
	}

	units := []imports.File{{Name: "a.timer", Text: "[Timer]\nOnCalendar=daily\n"}, {Name: "a.service", Text: "[Service]\nEnvironment=MY_SECRET=hunter2secret \"OTHER_TOKEN=hunter2secret\"\nExecStart=/usr/bin/true\n"}}
	d, _ := read(t, "systemd", units)
	if got := string(d.Write()); strings.Contains(got, "hunter2secret") || !d.Jobs()[0].Off {
		t.Errorf("systemd:\n%s", got)
	}
}

// An untrusted file cannot cause links to be followed, reads to block, or unlimited input to be
// read.
func TestFilesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}

	if _, err := imports.ReadFile(write("large", strings.Repeat("#", imports.MaxFile+1)), nil); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large file: %v", err)
	}
	if _, err := imports.ReadFile(write("latin", "# \xe9t\xe9\n"), nil); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("a file in another encoding: %v", err)
	}
	if _, err := imports.ReadFile(dir, nil); err == nil {
		t.Error("a folder was read as a file")
	}

	secret := write("outside", "[Service]\nExecStart=/usr/bin/true secret\n")
	units := filepath.Join(dir, "units")
	if err := os.Mkdir(units, 0o700); err != nil {
		t.Fatal(err)
	}
	write("units/a.timer", "[Timer]\nOnCalendar=daily\nUnit=../outside\n")
	if err := os.Symlink(secret, filepath.Join(units, "a.service")); err != nil {
		t.Skip("no links here")
	}
	files, skipped, err := imports.ReadFolder(units, ".timer", ".service")
	if err != nil || len(files) != 1 || strings.Join(skipped, " ") != "a.service" {
		t.Fatalf("%v, %v, %v", files, skipped, err)
	}
	beside, err := imports.ReadBeside(filepath.Join(units, "a.timer"), "a.service", "../outside")
	if err == nil && len(beside) > 0 {
		t.Errorf("a link was followed: %v", beside)
	}
	d := imports.Systemd(files, imports.SystemdOptions{})
	if got := string(d.Write()); strings.Contains(got, "secret") || len(d.Jobs()) != 0 {
		t.Errorf("what a unit names elsewhere was read:\n%s", got)
	}

	if d, err := imports.Dagu([]imports.File{{Name: "bomb.yaml", Text: "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nsteps: [*e]\n"}}); err == nil {
		t.Errorf("a YAML bomb was read: %d jobs", len(d.Jobs()))
	}
	if _, err := imports.OpenClaw([]imports.File{{Name: "deep.json", Text: strings.Repeat("[", 10_000)}}); err == nil {
		t.Error("a deep file was read")
	}
}

// An unknown key disables the job and is reported at the job, in every format and at every level.
func TestUnknownKeysTurnJobsOff(t *testing.T) {
	t.Parallel()
	const claw = `{"jobs":[{"id":"a","name":"a"%s,"schedule":{"kind":"every","everyMs":900000%s},"payload":{"kind":"command","command":"df"%s},"delivery":{"mode":"none"%s}}]%s}`
	fill := func(at int, said string) string {
		var parts [5]string
		if at >= 0 {
			parts[at] = said
		}
		return fmt.Sprintf(claw, parts[0], parts[1], parts[2], parts[3], parts[4])
	}
	for name, c := range map[string]struct {
		format string
		files  map[string]string
		key    string // "" if the job stays enabled
	}{
		"openclaw":            {"openclaw", map[string]string{"jobs.json": fill(-1, "")}, ""},
		"openclaw trigger":    {"openclaw", map[string]string{"jobs.json": fill(0, `,"trigger":{"script":"x"}`)}, "trigger"},
		"openclaw hours":      {"openclaw", map[string]string{"jobs.json": fill(0, `,"activeHours":{"start":"09:00"}`)}, "activeHours"},
		"openclaw idle":       {"openclaw", map[string]string{"jobs.json": fill(0, `,"idleOnly":true`)}, "idleOnly"},
		"openclaw pacing":     {"openclaw", map[string]string{"jobs.json": fill(1, `,"pacing":{"min":1}`)}, "pacing"},
		"openclaw runs":       {"openclaw", map[string]string{"jobs.json": fill(2, `,"maxRuns":3`)}, "maxRuns"},
		"openclaw delivery":   {"openclaw", map[string]string{"jobs.json": fill(3, `,"unless":"night"`)}, "unless"},
		"openclaw whole file": {"openclaw", map[string]string{"jobs.json": fill(4, `,"paused":true`)}, "paused"},
		"crontab":             {"crontab", map[string]string{"tab": "0 2 * * * -n -q date\n"}, ""},
		"crontab option":      {"crontab", map[string]string{"tab": "0 2 * * * -x date\n"}, "-x"},
		"crontab hours":       {"crontab", map[string]string{"tab": "START_HOURS_RANGE=3-22\n0 2 * * * date\n"}, "START_HOURS_RANGE"},
		"dagu":                {"dagu", map[string]string{"a.yaml": "schedule: 0 2 * * *\nmaxActiveSteps: 1\nsteps: [{command: date, stdout: out}]\n"}, ""},
		"dagu DAG":            {"dagu", map[string]string{"a.yaml": "schedule: 0 2 * * *\nskipIfSuccessful: true\nsteps: [{command: date}]\n"}, "skipIfSuccessful"},
		"dagu step":           {"dagu", map[string]string{"a.yaml": "schedule: 0 2 * * *\nsteps: [{command: date, unless: x}]\n"}, "unless"},
		"dagu retries":        {"dagu", map[string]string{"a.yaml": "schedule: 0 2 * * *\nsteps: [{command: date, retryPolicy: {limit: 2, exitCode: [1]}}]\n"}, "exitCode"},
		"systemd":             {"systemd", map[string]string{"a.timer": "[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n", "a.service": "[Unit]\nAfter=x.target\n[Service]\nExecStart=/bin/true\nNice=5\n"}, ""},
		"systemd timer":       {"systemd", map[string]string{"a.timer": "[Timer]\nOnCalendar=daily\nDeferReactivation=yes\n", "a.service": "[Service]\nExecStart=/bin/true\n"}, "DeferReactivation"},
		"systemd unit":        {"systemd", map[string]string{"a.timer": "[Timer]\nOnCalendar=daily\n", "a.service": "[Unit]\nRequisite=x.mount\n[Service]\nExecStart=/bin/true\n"}, "Requisite"},
		"systemd service":     {"systemd", map[string]string{"a.timer": "[Timer]\nOnCalendar=daily\n", "a.service": "[Service]\nExecStart=/bin/true\nRootDirectory=/x\n"}, "RootDirectory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var files []imports.File
			for _, file := range slices.Sorted(maps.Keys(c.files)) {
				files = append(files, imports.File{Name: file, Text: c.files[file]})
			}
			d, err := read(t, c.format, files)
			if err != nil {
				t.Fatal(err)
			}
			text, err := d.Settle(check(t, t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			if off := strings.Contains(string(text), "enabled: false"); off != (c.key != "") || !strings.Contains(string(text), c.key) {
				t.Errorf("%s", text)
			}
		})
	}
}
