package shell_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
)

// TestHomeIsMaskedWhateverIsGiven checks that a program with access to a parent folder of rouse's
// home does not see the home, even if it sees none of the run's folders. A folder within the home
// is not accessible.
func TestHomeIsMaskedWhateverIsGiven(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	around, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(around, "home")
	for _, name := range []string{"free", "home/ledger", "home/sub/token"} {
		path := filepath.Join(around, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("text of "+name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.roots.Mask(tool.ProtectedPaths{Hidden: []string{home}})

	for _, files := range []shell.Exposure{shell.ExposeNothing, shell.ExposeReading, shell.ExposeWriting} {
		t.Run(string(files), func(t *testing.T) {
			read := func(folder string) (string, error) {
				var out bytes.Buffer
				script := "cat " + filepath.Join(around, "free") + " " + filepath.Join(home, "ledger") + " " + filepath.Join(home, "sub/token")
				_, err := b.options.Launcher.Serve(t.Context(), shell.Service{Argv: []string{"sh", "-c", script}, Read: []string{folder}, Files: files, Stdout: &out})
				return out.String(), err
			}
			if got, err := read(around); err != nil || got != "text of free\n" {
				t.Errorf("it reads %q, %v", got, err)
			}
			if got, err := read(home); err != nil || got != "" {
				t.Errorf("given the home it reads %q, %v", got, err)
			}
			if got, err := read(filepath.Join(home, "sub")); err == nil || !strings.Contains(err.Error(), "belongs to rouse itself") {
				t.Errorf("given a folder of the home it reads %q, %v", got, err)
			}
		})
	}
}
