package imports_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/imports"
)

var update = flag.Bool("update", false, "write the wanted files")

// check is what rouse import checks with, for a place where nothing lies.
func check(t testing.TB, dir string) func([]byte) ([]imports.Problem, error) {
	t.Helper()
	return checkIn(dir)
}

func checkIn(dir string) func([]byte) ([]imports.Problem, error) {
	home := filepath.Join(dir, "home")
	return func(text []byte) (out []imports.Problem, err error) {
		_, err = load(dir, home, text)
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

func load(dir, home string, text []byte) (*config.Config, error) {
	getenv := func(name string) string { return map[string]string{"HOME": dir, "PATH": "/usr/bin:/bin"}[name] }
	return config.Load(config.LoadOptions{Path: filepath.Join(dir, "rouse.yaml"), Home: home, Text: text, Getenv: getenv, Tools: agent.Specs()})
}

// read makes a document of files, by the format that their folder is named for.
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

// What is written of each file of testdata is as it stands beside it, and rouse config check takes it.
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
	cfg, err := load(dir, filepath.Join(dir, "home"), got)
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

// A secret that stands in another scheduler's file is in nothing that is written of it.
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

// Nothing in a file of a stranger is followed, waited for, or read without end.
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
