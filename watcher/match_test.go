package watcher

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSelects(t *testing.T) {
	for _, c := range []struct {
		include, exclude string
		yes, no          string
	}{
		{"", "", "a.csv sub/b.csv ä.txt", ".a a~ a.part a.crdownload a.filepart a.tmp a.swp 4913 .DS_Store .git/a sub/.x/b sub/a.tmp"},
		{"*.csv", "", "a.csv x/y/a.csv", "a.txt acsv"},
		{"data", "", "data data/a data/x/y", "a datas/a"},
		{"data/", "", "data/a x/data/a", "a"},
		{"./data/*.csv", "", "data/a.csv", "x/data/a.csv data/x/a.csv"},
		{"data/**/*.csv", "", "data/a.csv data/x/y/a.csv", "a.csv"},
		{"*.{csv,pdf}", "", "a.csv b.pdf", "c.txt"},
		{"*.csv", "drafts old-*", "a.csv", "drafts/a.csv x/drafts/y/a.csv old-a.csv x/old-b.csv"},
		{"", "**/*.log", "a.txt", "a.log x/a.log"},
		{"*.tmp .env", "", "a.tmp .env sub/.env", "a.part .other a.csv"},
		{"*", "", "a.csv", "a.tmp .env"},
	} {
		w := Watch{Include: strings.Fields(c.include), Exclude: strings.Fields(c.exclude)}
		for _, rel := range strings.Fields(c.yes) {
			if !w.selects(rel) {
				t.Errorf("include %q, exclude %q: %s is not taken", c.include, c.exclude, rel)
			}
		}

		for _, rel := range strings.Fields(c.no) {
			if w.selects(rel) {
				t.Errorf("include %q, exclude %q: %s is taken", c.include, c.exclude, rel)
			}
		}
	}
}

func TestPrunes(t *testing.T) {
	w := Watch{Exclude: []string{"node_modules", "a/b", "*.csv"}}
	for rel, want := range map[string]bool{".": false, "x": false, "node_modules": true, "x/node_modules": true, "a/b": true, "a/b/c": true, "x/a/b": false, ".git": true, "x/.y/z": true} {
		if got := w.prunes(rel); got != want {
			t.Errorf("%s: %v", rel, got)
		}
	}
}

// What cannot work is refused by a sentence that names the job and what to do.
func TestValidated(t *testing.T) {
	dir := t.TempDir()
	good := Watch{Job: "in", Path: dir}
	for want, change := range map[string]func(*Watch){
		"not an absolute path": func(w *Watch) { w.Path = "inbox" },
		"existing is":          func(w *Watch) { w.Existing = "maybe" },
		"pattern \"[\"":        func(w *Watch) { w.Include = []string{"["} },
		"on_success is":        func(w *Watch) { w.OnSuccess.Action = "burn" },
		"on_failure moves to \"\"": func(w *Watch) {
			w.OnFailure = After{Action: "move"}
		},
		"the watched folder itself": func(w *Watch) { w.OnSuccess = After{Action: "move", Dir: dir + string(filepath.Separator)} },
	} {
		w := good
		change(&w)
		if _, err := validated([]Watch{w}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "job in: ") {
			t.Errorf("want %q, got %v", want, err)
		}
	}

	if _, err := validated([]Watch{good, good}); err == nil {
		t.Error("two watches of one job were taken")
	}

	got, err := validated([]Watch{good})
	if err != nil || got[0].Settle != time.Second || got[0].Existing != ExistingProcess {
		t.Errorf("%+v (%v)", got, err)
	}
}

func TestNumbered(t *testing.T) {
	long := strings.Repeat("ä", 125) + ".csv"
	for _, c := range []struct {
		name string
		i    int
		want string
	}{
		{"a.csv", 0, "a.csv"}, {"a.csv", 1, "a-2.csv"}, {"a.tar.gz", 2, "a.tar-3.gz"}, {"a", 1, "a-2"}, {".env", 1, ".env-2"},
		{long, 0, long}, {long, 1, strings.Repeat("ä", 124) + "-2.csv"},
	} {
		if got := numbered(c.name, c.i); got != c.want || len(got) > maxName {
			t.Errorf("%s, %d: %s", c.name, c.i, got)
		}
	}
}
