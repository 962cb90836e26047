// Package label stores which files, tables and workspaces contain untrusted or private data. It
// also updates the taint of runs.
package label

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// TaintPrivate is the letter in Run.Taint for private data of the owner.
const TaintPrivate = "B"

// dataLabels are the taint letters that a run passes on to the data it writes. The third letter, an
// external effect, is not passed on.
var dataLabels = []string{TaintUntrusted, TaintPrivate}

// PlaceKind is the kind of a place.
type PlaceKind string

// Kinds of places.
const (
	PlaceFile     PlaceKind = "file"     // a file, or a folder with its contents
	PlaceTable    PlaceKind = "table"    // a table of an agent's database
	PlaceDatabase PlaceKind = "database" // an agent's database with all its tables
	// PlaceWorkspace is a workspace of an agent's skill in this ledger.
	PlaceWorkspace PlaceKind = "workspace"
)

// FileID identifies a file or folder, even after it is renamed. The zero value means the identity
// is unknown.
type FileID struct {
	Device, Inode uint64
	// Born is the creation time in nanoseconds. It is needed because file systems reuse inodes. It
	// is 0 if the file system does not record it.
	Born int64
}

// Place is a location of data that outlives a run.
type Place struct {
	Kind PlaceKind
	// Name is an absolute path without links, AGENT, AGENT/TABLE or AGENT/SKILL/NAME.
	Name string
	ID   FileID // identity of the file or folder now at the path
	// Above holds the identities of the folders that contain a path. They are needed for reads,
	// because a folder may have been labelled under another name.
	Above []FileID
}

// TablePlace returns the place of an agent's table. If table is empty, it returns the place of the
// whole database.
func TablePlace(agent, table string) Place {
	if table == "" {
		return Place{Kind: PlaceDatabase, Name: agent}
	}
	return Place{Kind: PlaceTable, Name: agent + "/" + table}
}

// WorkspacePlace returns the place of a workspace of an agent's skill. If skill is empty, it
// returns the place of all workspaces of the agent.
func WorkspacePlace(agent, skill, name string) Place {
	if skill == "" {
		return Place{Kind: PlaceWorkspace, Name: agent}
	}
	return Place{Kind: PlaceWorkspace, Name: agent + "/" + skill + "/" + name}
}

// key returns the place's name in a tree in which folders and databases are parents of their
// contents.
func (p Place) key() string {
	switch p.Kind {
	case PlaceFile:
		return p.Name
	case PlaceWorkspace:
		return string(PlaceWorkspace) + ":" + p.Name
	}
	return string(PlaceDatabase) + ":" + p.Name
}

// parent returns the key of the place that contains key, or "" at the top.
func parent(key string) string {
	if strings.HasPrefix(key, string(PlaceDatabase)+":") || strings.HasPrefix(key, string(PlaceWorkspace)+":") {
		holder, _, ok := strings.Cut(key, "/")
		if !ok {
			return ""
		}
		return holder
	}

	if up := filepath.Dir(key); up != key && up != "." {
		return up
	}
	return ""
}

// Label is one letter on a place.
type Label struct {
	Place
	Letter string // A or B
	// Run is the first run that wrote to the place while tainted with the letter. It is 0 if the
	// label does not come from a run of this ledger.
	Run int64
	At  time.Time
}

// Labels stores which files, tables and workspaces contain untrusted or private data.
type Labels struct {
	DB    *store.DB
	cache labelCache
}

// labelCache holds all labels in memory, because every call of every run looks up labels. The cache
// is valid only if no other process writes to the ledger.
type labelCache struct {
	mu     sync.Mutex
	loaded bool
	rows   map[labelKey]Label
	at     map[string]string // letters by key
	below  map[string]string // letters of all places below a key
	ids    map[FileID]string
}

type labelKey struct {
	kind   PlaceKind
	name   string
	letter string
}

func (c *labelCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loaded = false
}

// add adds a label to the cache. Only forget removes letters.
func (c *labelCache) add(l Label) {
	key := labelKey{l.Kind, l.Name, l.Letter}
	if was, ok := c.rows[key]; ok {
		l.Run, l.At = was.Run, was.At
		if l.ID == (FileID{}) {
			l.ID = was.ID
		}
	}

	c.rows[key] = l
	if l.ID != (FileID{}) {
		c.ids[l.ID] = mergeTaint(c.ids[l.ID], l.Letter)
	}

	at := l.key()
	c.at[at] = mergeTaint(c.at[at], l.Letter)
	for up := parent(at); up != ""; up = parent(up) {
		c.below[up] = mergeTaint(c.below[up], l.Letter)
	}
}

// with loads the cache if necessary, locks it, and calls use.
func (l *Labels) with(ctx context.Context, use func(*labelCache)) error {
	c := &l.cache
	c.mu.Lock()
	defer c.mu.Unlock()

	// With PostgreSQL, other nodes add labels, too.
	if !c.loaded || l.DB.Postgres != nil {
		all, err := store.List(store.Reads(ctx, l.DB), labelFields, `select kind, place, label, device, inode, born, run, at from labels`)
		if err != nil {
			return fmt.Errorf("the labels of data cannot be read: %w", err)
		}

		c.rows, c.at, c.below, c.ids = map[labelKey]Label{}, map[string]string{}, map[string]string{}, map[FileID]string{}
		for _, one := range all {
			c.add(one)
		}
		c.loaded = true
	}

	use(c)
	return nil
}

// unsigned scans a signed column that holds the bits of an unsigned number.
type unsigned uint64

// Scan implements sql.Scanner.
func (u *unsigned) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("%v is not a number", v)
	}
	*u = unsigned(n)
	return nil
}

func labelFields(l *Label) []any {
	return []any{&l.Kind, &l.Name, &l.Letter, (*unsigned)(&l.ID.Device), (*unsigned)(&l.ID.Inode), &l.ID.Born, &l.Run, store.Time(&l.At)}
}

// Of returns the letters of all labels on the places, on their parents and on their contents. The
// contents count because a folder is searched as a whole, and a database is queried as a whole.
func (l *Labels) Of(ctx context.Context, places ...Place) (letters string, err error) {
	if len(places) == 0 {
		return "", nil
	}

	err = l.with(ctx, func(c *labelCache) {
		for _, p := range places {
			for _, id := range append([]FileID{p.ID}, p.Above...) {
				letters += c.ids[id]
			}

			letters += c.below[p.key()]
			for at := p.key(); at != ""; at = parent(at) {
				letters += c.at[at]
			}
		}
	})
	return mergeTaint(letters, ""), err
}

// Unlabelled returns the places that lack a letter that a run with this taint would add.
func (l *Labels) Unlabelled(ctx context.Context, taint string, places []Place) (out []Place, err error) {
	if len(places) == 0 || !strings.ContainsAny(taint, strings.Join(dataLabels, "")) {
		return nil, nil
	}

	err = l.with(ctx, func(c *labelCache) {
		for _, p := range places {
			if slices.ContainsFunc(dataLabels, func(letter string) bool { return strings.Contains(taint, letter) && !c.has(p, letter) }) {
				out = append(out, p)
			}
		}
	})
	return out, err
}

// has reports whether a place has a label. If the identity of the place is known, only a label with
// that identity counts. Otherwise, labels on its parents count, too.
func (c *labelCache) has(p Place, letter string) bool {
	if p.ID != (FileID{}) {
		return c.rows[labelKey{p.Kind, p.Name, letter}].ID == p.ID
	}

	for at := p.key(); at != ""; at = parent(at) {
		if strings.Contains(c.at[at], letter) {
			return true
		}
	}
	return false
}

// addLabels adds the labels of a run to the places that the run is about to write. An
// existing label keeps its run, because the owner has to inspect the first run that wrote there.
func addLabels(tx *store.Tx, r record.Run, taint string, places []Place, now time.Time) (added []Label) {
	for _, p := range places {
		for _, letter := range dataLabels {
			if !strings.Contains(taint, letter) {
				continue
			}
			// A rewritten file has the same name but another identity. Keep the old identity if the
			// new one is unknown.
			tx.Run(`insert into labels (kind, place, label, device, inode, born, run, at) values ($1, $2, $3, $4, $5, $6, $7, $8)
				on conflict (kind, place, label) do update set device = excluded.device, inode = excluded.inode, born = excluded.born where excluded.inode <> 0`,
				string(p.Kind), p.Name, letter, int64(p.ID.Device), int64(p.ID.Inode), p.ID.Born, r.ID, store.Millis(now))
			added = append(added, Label{Place: Place{Kind: p.Kind, Name: p.Name, ID: p.ID}, Letter: letter, Run: r.ID, At: now})
		}
	}
	return added
}

// keep adds committed labels to the cache.
func (l *Labels) keep(added []Label) {
	if len(added) == 0 {
		return
	}

	c := &l.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range added {
		if c.loaded { // otherwise the next load reads them
			c.add(one)
		}
	}
}

// List returns all labels, ordered by place.
func (l *Labels) List(ctx context.Context) (out []Label, err error) {
	err = l.with(ctx, func(c *labelCache) {
		for _, one := range c.rows {
			out = append(out, one)
		}
	})
	slices.SortFunc(out, func(a, b Label) int {
		return strings.Compare(string(a.Kind)+"\x00"+a.Name+"\x00"+a.Letter, string(b.Kind)+"\x00"+b.Name+"\x00"+b.Letter)
	})
	return out, err
}

// Add labels places that a program outside of a run may write to.
func (l *Labels) Add(ctx context.Context, letters string, places ...Place) error {
	var added []Label
	err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
		added = addLabels(tx, record.Run{}, letters, places, l.DB.Now())
		return nil
	})
	if err == nil {
		l.keep(added)
	}
	return err
}

// Clear removes a letter from places and their contents, after the owner has inspected them. It
// returns ErrNotFound if no place has the label.
func (l *Labels) Clear(ctx context.Context, letter string, places ...Place) (cleared []Label, err error) {
	all, err := l.List(ctx)
	if err != nil {
		return nil, err
	}

	for _, one := range all {
		if one.Letter == letter && slices.ContainsFunc(places, one.isOf) {
			cleared = append(cleared, one)
		}
	}
	if len(cleared) == 0 {
		return nil, fmt.Errorf("nothing there has the label %s: %w", letter, store.ErrNotFound)
	}

	defer l.cache.forget()
	return cleared, store.Write(ctx, l.DB, func(tx *store.Tx) error {
		for _, one := range cleared {
			tx.Run(`delete from labels where kind = $1 and place = $2 and label = $3`, string(one.Kind), one.Name, letter)
			if err := record.AddEvent(tx, record.Event{At: l.DB.Now(), Kind: "label.cleared"}, map[string]any{"kind": string(one.Kind), "place": one.Name, "label": letter, "run": one.Run}); err != nil {
				return err
			}
		}
		return nil
	})
}

// isOf reports whether the label is on p or below it. A file is found even if its name has changed.
func (l Label) isOf(p Place) bool {
	return p.Kind == l.Kind && (p.Name == l.Name || p.ID != FileID{} && p.ID == l.ID) || p.holds(l.key())
}

// holds reports whether key is the key of p or of a place below it.
func (p Place) holds(key string) bool {
	for ; key != ""; key = parent(key) {
		if key == p.key() {
			return true
		}
	}
	return false
}

// TaintUntrusted is the letter in Run.Taint for content that strangers may have written. A run
// triggered by files or a webhook has it from the start. So has a run whose wake was planned by a
// run with this letter.
const TaintUntrusted = "A"

// TaintUpdate is the effect of upcoming calls on the taint of their run.
type TaintUpdate struct {
	Taint string // letters to add to the run's taint
	// Tier is the confinement of the program to start. A run keeps the weakest one.
	Tier string
	// Writes holds the places that the calls write. They get the data labels of the run.
	Writes []Place
	// UsedApprovals maps the inbox items that allow the calls to the keys of the calls.
	UsedApprovals map[int64]string
}

// RecordTaint records the effects of calls before an attempt makes them.
func (l *Labels) RecordTaint(ctx context.Context, a record.Attempt, m TaintUpdate) error {
	now := l.DB.Now()
	var labels []Label
	err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
		r, err := record.CheckFence(tx, l.DB, a)
		if err != nil {
			return err
		}

		taint, err := TaintRun(tx, r, m, now)
		if err != nil {
			return err
		}
		labels = addLabels(tx, r, taint, m.Writes, now)
		for id, key := range m.UsedApprovals {
			if err := inbox.UseApproval(tx, r.ID, id, key); err != nil {
				return err
			}
		}

		return nil
	})
	if err == nil {
		l.keep(labels)
	}
	return err
}

// TaintRun adds letters to the taint of a run and returns the resulting taint.
func TaintRun(tx *store.Tx, r record.Run, m TaintUpdate, now time.Time) (string, error) {
	// Tiers are letters from A, the strongest confinement; a greater letter is weaker.
	taint, tier := mergeTaint(r.Taint, m.Taint), max(r.Tier, m.Tier)
	if taint != r.Taint || tier != r.Tier {
		tx.Run(`update runs set taint = $1, tier = $2 where id = $3`, taint, tier, r.ID)
	}
	if taint == r.Taint {
		return taint, nil
	}
	return taint, record.AddEvent(tx, record.Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.tainted"}, map[string]any{"taint": strings.Split(taint, "")})
}

// mergeTaint returns the letters of a and b, sorted and without duplicates.
func mergeTaint(a, b string) string {
	letters := strings.Split(a+b, "")
	slices.Sort(letters)
	return strings.Join(slices.Compact(letters), "")
}

// Adopted labels an agent's database that is about to be adopted, if its owner was asked about it.
// The database gets all data labels, because this ledger does not know the labels of the other
// ledger.
func (l *Labels) Adopted(ctx context.Context, agent string) error {
	var added []Label
	err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
		asked, err := inbox.DatabaseAsked(tx, agent)
		if asked {
			added = addLabels(tx, record.Run{}, strings.Join(dataLabels, ""), []Place{TablePlace(agent, "")}, l.DB.Now())
		}
		return err
	})
	if err == nil {
		l.keep(added)
	}
	return err
}
