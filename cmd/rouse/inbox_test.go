package main

import (
	"bufio"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// Runs leave the files of one folder in place, and move those of the other.
const inboxConfig = `version: 1
home: ./home
limits: {runs: 8, runs_per_agent: 8}
agents: [{name: bookkeeper, workdir: ./books}]
jobs:
  - name: stay
    agent: bookkeeper
    overlap: allow
    watch: {path: ./stay, recursive: true, responsiveness: fast}
    playbook: [{call: db_import, with: {table: lines, path: "{{ .File.Path }}"}}]
  - name: go
    agent: bookkeeper
    overlap: allow
    watch: {path: ./go, recursive: true, responsiveness: fast, on_success: {move: ./gone}}
    playbook: [{call: db_import, with: {table: lines, path: "{{ .File.Path }}"}}]
`

const (
	inboxWriters = 4
	inboxSettle  = 200 * time.Millisecond // settle time of responsiveness: fast
)

// TestInbox writes files from several processes in many ways, and kills and restarts the daemon
// meanwhile. Every content must have exactly one run, which succeeded and read the whole file.
// ROUSE_TEST_INBOX sets the number of files; .ci/run uses 1500.
func TestInbox(t *testing.T) {
	t.Parallel()
	files, err := strconv.Atoi(os.Getenv("ROUSE_TEST_INBOX"))
	if err != nil {
		files = 120
	}

	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": inboxConfig, "stay/.keep": "", "go/.keep": "", "staging/.keep": ""})
	config := filepath.Join(dir, "rouse.yaml")
	p := endtoend.Serve(t, config)
	runs := openReadOnly(t, filepath.Join(dir, "home", "ledger.db"))
	drops := &dropped{}
	drops.start(t, dir, files)

	grows(t, "runs before the kill", files/6, func() int { return countFinished(t, runs) })
	drops.until(t, files/3)
	p.Kill(t)
	atKill := countFinished(t, runs)
	drops.until(t, files/2)
	p = endtoend.Serve(t, config)
	drops.until(t, files)
	grows(t, "the end of every run", files, func() int { return countFinished(t, runs) })
	p.Stop(t)

	// Restart the daemon, which scans all files again. The last files settle after all others, so
	// their runs mark the end.
	p = endtoend.Serve(t, config)

	for i, job := range []string{"stay", "go"} {
		d := arriving{content: files + i, folder: filepath.Join(dir, job), staging: filepath.Join(dir, "staging")}
		if err := d.renamedIn(time.Now()); err != nil {
			t.Fatal(err)
		}
		drops.add(d.report())
	}

	grows(t, "the runs of the last files", files+2, func() int { return countFinished(t, runs) })
	cmdtest.Until(t, "the end of what is due to files after their runs", func() bool { return len(filesIn(t, filepath.Join(dir, "go"))) == 0 })
	p.Stop(t)

	interrupted := drops.check(t, runs)
	drops.checkFiles(t, append(filesIn(t, filepath.Join(dir, "stay")), filesIn(t, filepath.Join(dir, "gone"))...))
	drops.checkRows(t, openReadOnly(t, filepath.Join(dir, "home", "agents", "bookkeeper", "db.sqlite")))
	t.Logf("%d files, %d of them done at the kill, %d runs went on after it, %d writers were held up", files, atKill, interrupted, drops.stalled())
}

// grows waits until a count reaches enough. The timeout starts again whenever the count grows.
func grows(t *testing.T, what string, enough int, count func() int) {
	t.Helper()
	for last := -1; last < enough; {
		cmdtest.Until(t, fmt.Sprintf("%s (%d of %d)", what, last, enough), func() bool {
			n := count()
			more := n > last
			last = n
			return more || n >= enough
		})
	}
}

func openReadOnly(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// countFinished counts the finished runs.
func countFinished(t *testing.T, db *sql.DB) int {
	t.Helper()
	var n int
	if err := db.QueryRowContext(t.Context(), `select count(*) from runs where state = 'finished'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// arrival is a completely written file.
type arrival struct {
	Content int    `json:"content"`
	Path    string `json:"path"`
	Hash    string `json:"hash"`
	// Stalled means that a write was delayed for longer than the settle time. A run may then have
	// read a partial file.
	Stalled bool `json:"stalled"`
}

// dropped holds all files that the writers have finished.
type dropped struct {
	mu  sync.Mutex
	all []arrival
}

func (d *dropped) add(a arrival) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, a)
}

func (d *dropped) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.all)
}

func (d *dropped) stalled() int {
	n := 0
	for _, a := range d.all {
		if a.Stalled {
			n++
		}
	}
	return n
}

func (d *dropped) until(t *testing.T, n int) {
	t.Helper()
	grows(t, "files that are written", n, d.count)
}

// start starts the writers.
func (d *dropped) start(t *testing.T, dir string, files int) {
	t.Helper()
	path, err := exec.LookPath("rouse-writer") // a link to this test binary
	if err != nil {
		t.Fatal(err)
	}

	for i := range inboxWriters {
		var complaints strings.Builder
		writer := exec.CommandContext(t.Context(), path, dir, strconv.Itoa(i), strconv.Itoa(files))
		writer.Stderr = &complaints
		out, err := writer.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := writer.Start(); err != nil {
			t.Fatal(err)
		}

		var reading sync.WaitGroup
		reading.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var a arrival
				if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
					t.Error(err)
					return
				}
				d.add(a)
			}
			if err := writer.Wait(); err != nil {
				t.Errorf("a writer failed: %v: %s", err, complaints.String())
			}
		})

		t.Cleanup(reading.Wait)
	}
}

// check compares the runs with the written files. It returns the number of interrupted runs.
func (d *dropped) check(t *testing.T, db *sql.DB) (interrupted int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `select id, json_extract(detail, '$.file.path'), json_extract(detail, '$.file.hash'), outcome, error, attempt from runs`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()

	of := map[string][]string{} // by path and content
	held := map[string]bool{}
	expected := map[string]bool{}
	for _, a := range d.all {
		held[a.Path] = held[a.Path] || a.Stalled
		expected[a.Path+" "+a.Hash] = true
	}

	for rows.Next() {
		var id, attempt int
		var path, hash, outcome, why string
		if err := rows.Scan(&id, &path, &hash, &outcome, &why, &attempt); err != nil {
			t.Fatal(err)
		}

		if attempt > 1 {
			interrupted++
		}

		key := path + " " + hash
		of[key] = append(of[key], outcome)
		if !expected[key] && !held[path] {
			t.Errorf("run %d, which ended %s %s, is of bytes that were never all of %s", id, outcome, why, path)
		}
	}

	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}

	for key := range expected {
		if outcomes := of[key]; !slices.Equal(outcomes, []string{"success"}) {
			t.Errorf("the runs of %s ended %q, want one success", key, outcomes)
		}
	}

	return interrupted
}

// checkRows compares the imported rows with the lines of the files.
func (d *dropped) checkRows(t *testing.T, db *sql.DB) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `select content, count(*), count(distinct line), min("of"), max("of") from lines group by content`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()

	seen := map[int]string{}
	for rows.Next() {
		var content, n, different, least, most int
		if err := rows.Scan(&content, &n, &different, &least, &most); err != nil {
			t.Fatal(err)
		}
		seen[content] = fmt.Sprintf("%d rows, %d different, of %d to %d", n, different, least, most)
	}

	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}

	for _, a := range d.all {
		n := linesOf(a.Content)
		if want := fmt.Sprintf("%d rows, %d different, of %d to %d", n, n, n, n); seen[a.Content] != want && !a.Stalled {
			t.Errorf("%s: %s were imported, want %s", a.Path, seen[a.Content], want)
		}
	}
}

// filesIn returns the files in a folder and its subfolders.
func filesIn(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".csv" && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return files
}

// checkFiles checks that the remaining files contain every content.
func (d *dropped) checkFiles(t *testing.T, files []string) {
	t.Helper()
	left := map[string]bool{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		left[hashOf(text)] = true
	}

	for _, a := range d.all {
		if !left[a.Hash] {
			t.Errorf("%s is gone", a.Path)
		}
	}
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// linesOf returns the number of lines of a content.
func linesOf(content int) int { return 5 + content%60 }

// arriving is a file to be written.
type arriving struct {
	content         int
	folder, staging string
	path            string
	stalled         bool
}

func (d *arriving) name() string { return fmt.Sprintf("%d.csv", d.content) }

func (d *arriving) lines() []string {
	n := linesOf(d.content)
	out := []string{"content,line,of\n"}
	for i := range n {
		out = append(out, fmt.Sprintf("%d,%d,%d\n", d.content, i, n))
	}
	return out
}

func (d *arriving) text() []byte { return []byte(strings.Join(d.lines(), "")) }

func (d *arriving) report() arrival {
	return arrival{d.content, d.path, hashOf(d.text()), d.stalled}
}

// writeFile writes a file in pieces, with a pause after each piece.
func (d *arriving) writeFile(path string, pieces []string, pause time.Duration) error {
	changed := time.Now()
	f, err := os.Create(path)
	if err != nil {
		return err
	}

	for _, piece := range pieces {
		time.Sleep(pause)
		if _, err := f.WriteString(piece); err != nil {
			return err
		}
		now := time.Now()
		d.stalled = d.stalled || now.Sub(changed) > inboxSettle
		changed = now
	}

	return f.Close()
}

func (d *arriving) whole() error {
	d.path = filepath.Join(d.folder, d.name())
	return d.writeFile(d.path, []string{string(d.text())}, 0)
}

func (d *arriving) slowly() error {
	d.path = filepath.Join(d.folder, d.name())
	lines := d.lines()
	var pieces []string
	for piece := range slices.Chunk(lines, 1+len(lines)/6) {
		// Pieces must not end at line ends.
		text := strings.Join(piece, "")
		pieces = append(pieces, text[:len(text)/2], text[len(text)/2:])
	}

	return d.writeFile(d.path, pieces, 30*time.Millisecond)
}

// renamedIn writes the file elsewhere with an older modification time, and renames it into the
// folder.
func (d *arriving) renamedIn(written time.Time) error {
	d.path = filepath.Join(d.folder, d.name())
	aside := filepath.Join(d.staging, d.name())
	return errors.Join(os.WriteFile(aside, d.text(), 0o644), os.Chtimes(aside, written, written), os.Rename(aside, d.path))
}

// download writes a partial file under a temporary name and renames it.
func (d *arriving) download() error {
	d.path = filepath.Join(d.folder, d.name())
	part := d.path + ".part"
	if err := os.WriteFile(part, d.text()[:20], 0o644); err != nil {
		return err
	}
	time.Sleep(2 * inboxSettle) // longer than the settle time
	return errors.Join(os.WriteFile(part, d.text(), 0o644), os.Rename(part, d.path))
}

// nested creates subfolders for a file and writes it at once.
func (d *arriving) nested() error {
	d.path = filepath.Join(d.folder, fmt.Sprint("new", d.content), "deep", "er", d.name())
	return errors.Join(os.MkdirAll(filepath.Dir(d.path), 0o755), d.writeFile(d.path, []string{string(d.text())}, 0))
}

// nestedIn renames a folder with the file into the watched folder.
func (d *arriving) nestedIn() error {
	box := fmt.Sprint("box", d.content)
	aside := filepath.Join(d.staging, box, "sub")
	d.path = filepath.Join(d.folder, box, "sub", d.name())
	return errors.Join(os.MkdirAll(aside, 0o755), os.WriteFile(filepath.Join(aside, d.name()), d.text(), 0o644),
		os.Rename(filepath.Join(d.staging, box), filepath.Join(d.folder, box)))
}

// again writes the same content to the same path again, which must not start a run.
func (d *arriving) again() error {
	if err := d.renamedIn(time.Now()); err != nil {
		return err
	}
	return d.renamedIn(time.Now().Add(-time.Hour))
}

// writeInbox is the main function of a writer process. It prints each finished file.
func writeInbox() {
	if err := writePart(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func writePart(dir, part, files string) error {
	first, err := strconv.Atoi(part)
	if err != nil {
		return err
	}

	n, err := strconv.Atoi(files)
	if err != nil {
		return err
	}

	kinds := []func(*arriving) error{
		(*arriving).whole, (*arriving).slowly, (*arriving).nested, (*arriving).download, (*arriving).nestedIn, (*arriving).again,
		func(d *arriving) error { return d.renamedIn(time.Now()) },
		func(d *arriving) error { return d.renamedIn(time.Now().Add(-time.Hour)) },
	}

	var mu sync.Mutex
	var failed error
	out := json.NewEncoder(os.Stdout)
	var writing sync.WaitGroup
	lanes := make(chan struct{}, 8) // slow writes run concurrently
	for i, content := 0, first; content < n; i, content = i+1, content+inboxWriters {
		lanes <- struct{}{}
		writing.Go(func() {
			defer func() { <-lanes }()
			d := &arriving{content: content, folder: filepath.Join(dir, []string{"stay", "go"}[i/len(kinds)%2]), staging: filepath.Join(dir, "staging")}
			err := kinds[i%len(kinds)](d)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err, out.Encode(d.report()))
		})
	}

	writing.Wait()
	return failed
}
