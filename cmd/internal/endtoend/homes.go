package endtoend

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/secret"
)

// Replayed is the output of `rouse replay --json`.
type Replayed struct {
	Same        bool
	Unknown     string
	Differences []struct {
		Attempt, Step       int
		What, Recorded, Now string
	}
	Recorded, Now struct {
		Outcome, Summary     string
		Steps, Calls, Tokens int
		Cost                 int64 `json:"cost_micro_usd"`
	}
}

// Text returns the whole result, for the message of a failed test.
func (p Replayed) Text() string {
	raw, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// Replay replays a run. It accepts exit code 1, which means that the replay differs.
func Replay(t *testing.T, args ...string) (p Replayed) {
	t.Helper()
	cmd := Rouse(t, append([]string{"replay", "--json"}, args...)...)
	err := cmd.Run()
	if bad := json.Unmarshal(cmd.Out.Bytes(), &p); bad != nil {
		t.Fatalf("%v, %v: %s%s", err, bad, cmd.Out.String(), cmd.Err.String())
	}
	if (err == nil) != p.Same {
		t.Errorf("exit %v with same=%v", err, p.Same)
	}

	return p
}

// Call returns a call of a scripted model.
func Call(id, name, args string) model.Call {
	return model.Call{ID: id, Name: name, Args: json.RawMessage(args)}
}

// Drop puts files into a folder. Each file appears atomically.
func Drop(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		temp := filepath.Join(dir, ".rouse-test-"+fmt.Sprint(len(name)))
		if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temp, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// JobOf returns the job with the given name from `rouse jobs`.
func JobOf(t *testing.T, config, name string) api.Job {
	t.Helper()
	var jobs []api.Job
	RunJSON(t, &jobs, "jobs", "--json", "--config", config)

	for _, j := range jobs {
		if j.Name == name {
			return j
		}
	}

	t.Fatalf("there is no job %s", name)
	return api.Job{}
}

// RunsOf returns the finished runs of a job, the oldest first.
func RunsOf(t *testing.T, config, job string) []api.Run {
	t.Helper()
	var runs []api.Run
	RunJSON(t, &runs, "runs", "--json", "-n", "100", "--state", "finished", "--job", job, "--config", config)
	slices.Reverse(runs)
	return runs
}

// FreeAddress returns an address that is not in use. Its port is below the ephemeral ports, so the
// system does not assign it to another test before the program listens.
func FreeAddress(t *testing.T) string {
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return l.Addr().String()
	}
	t.Fatal("100 ports are all taken")
	return ""
}

// KeepSecrets stores secrets in a home.
func KeepSecrets(t *testing.T, home string, values map[string]string) {
	t.Helper()
	store, err := secret.New(secret.Options{Home: home})
	if err != nil {
		t.Fatal(err)
	}

	for name, value := range values {
		if _, _, err := store.Set(name, value, secret.InFile); err != nil {
			t.Fatal(err)
		}
	}
}

// jobTimes matches the schedules of jobs in an example.
var jobTimes = regexp.MustCompile(`(?m)^( +)(schedule: "[^"]*"|every: \S+)`)

// CopyExample copies an example from the repository, without files that earlier runs left. It
// changes the schedules so that no job comes due during a test.
func CopyExample(t *testing.T, name string) (config string) {
	t.Helper()
	files := map[string]string{}
	from := os.DirFS(filepath.Join("../../../../examples", name))
	err := fs.WalkDir(from, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if slices.Contains([]string{".rouse", "out"}, path) {
				return fs.SkipDir
			}
			return nil
		}
		raw, err := fs.ReadFile(from, path)
		files[path] = string(raw)
		if path == "rouse.yaml" {
			files[path] = jobTimes.ReplaceAllString(files[path], `${1}schedule: "0 0 29 2 *"`)
			if !strings.Contains(files[path], "\nnotifications:") { // without a desktop channel, notices stay pending and tests can read them
				files[path] += "\nnotifications: [{name: desktop, kind: desktop}]\n"
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cmdtest.Write(t, files), "rouse.yaml")
}
