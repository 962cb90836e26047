// Package label has which files, tables and workspaces hold untrusted or private data, and adds to the taint of runs.
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

// TaintPrivate is the letter in Run.Taint for data that is for its owner alone.
const TaintPrivate = "B"

// dataLabels are the letters that stay with what a run writes. The third, an effect beyond the host, is
// over with its call.
var dataLabels = []string{TaintUntrusted, TaintPrivate}

// PlaceKind says what a place is.
type PlaceKind string

// The kinds of places.
const (
	PlaceFile     PlaceKind = "file"     // a file, or a folder with all that is below it
	PlaceTable    PlaceKind = "table"    // of an agent's database
	PlaceDatabase PlaceKind = "database" // an agent's, with all its tables
	// PlaceWorkspace is state of an agent's skill in this ledger.
	PlaceWorkspace PlaceKind = "workspace"
)

// FileID is the identity of a file or folder, which it keeps when it is renamed. The zero value is
// that of none.
type FileID struct {
	Device, Inode uint64
	Born          int64 // nanoseconds: inodes are used again; 0 where the file system does not tell
}

// Place is where data lies that outlives a run.
type Place struct {
	Kind PlaceKind
	Name string // an absolute path without links; AGENT/TABLE; AGENT/SKILL/NAME; AGENT
	ID   FileID // of what lies at a path now
	// Above are the identities of the folders that a path lies in, for those who read it: one of them may have
	// been labelled by another name.
	Above []FileID
}

// TablePlace is a table of an agent, or with "" its whole database.
func TablePlace(agent, table string) Place {
	if table == "" {
		return Place{Kind: PlaceDatabase, Name: agent}
	}
	return Place{Kind: PlaceTable, Name: agent + "/" + table}
}

// WorkspacePlace is a workspace of an agent's skill, or with "" and "" all of the agent's workspaces.
func WorkspacePlace(agent, skill, name string) Place {
	if skill == "" {
		return Place{Kind: PlaceWorkspace, Name: agent}
	}
	return Place{Kind: PlaceWorkspace, Name: agent + "/" + skill + "/" + name}
}

// key is the place in a tree of names in which folders and databases stand above what they hold.
func (p Place) key() string {
	switch p.Kind {
	case PlaceFile:
		return p.Name
	case PlaceWorkspace:
		return string(PlaceWorkspace) + ":" + p.Name
	}
	return string(PlaceDatabase) + ":" + p.Name
}

// parent is the key of what holds a place, "" at the top.
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
	Run    int64  // the first that wrote there while it held the label; 0: one of another ledger
	At     time.Time
}

// Labels has which files, tables and workspaces hold untrusted or private data.
type Labels struct {
	DB    *store.DB
	cache labelCache
}

// labelCache holds all labels, so that looking one up costs no query: every call of every run asks. It
// holds as long as this process alone writes the ledger.
type labelCache struct {
	mu     sync.Mutex
	loaded bool
	rows   map[labelKey]Label
	at     map[string]string // letters by key
	below  map[string]string // letters of what lies below a key
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

// add takes a label in. A letter is never taken away but with forget.
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

// with calls a function with all labels.
func (l *Labels) with(ctx context.Context, use func(*labelCache)) error {
	c := &l.cache
	c.mu.Lock()
	defer c.mu.Unlock()

	// Other nodes label data, too.
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

// unsigned is the destination of a column with the bits of an unsigned number.
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

// Of returns the letters of the labels on places, on what holds them, and on what they hold: a
// folder is searched and a database is queried as a whole.
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

// Unlabelled returns those of some places that lack one of the letters that a run would leave there.
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

// has reports whether a label is on record for a place: with its identity for the place itself, else for what
// holds it, too.
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

// addLabels puts the labels of a run on what it is about to write. The first run that did so stays on
// record: it is where the owner has to look.
func addLabels(tx *store.Tx, r record.Run, taint string, places []Place, now time.Time) (added []Label) {
	for _, p := range places {
		for _, letter := range dataLabels {
			if !strings.Contains(taint, letter) {
				continue
			}
			// A file that is written again is another file of the same name; what is not known takes nothing away.
			tx.Run(`insert into labels (kind, place, label, device, inode, born, run, at) values ($1, $2, $3, $4, $5, $6, $7, $8)
				on conflict (kind, place, label) do update set device = excluded.device, inode = excluded.inode, born = excluded.born where excluded.inode <> 0`,
				string(p.Kind), p.Name, letter, int64(p.ID.Device), int64(p.ID.Inode), p.ID.Born, r.ID, store.Millis(now))
			added = append(added, Label{Place: Place{Kind: p.Kind, Name: p.Name, ID: p.ID}, Letter: letter, Run: r.ID, At: now})
		}
	}
	return added
}

// keep takes labels that were committed into the cache.
func (l *Labels) keep(added []Label) {
	if len(added) == 0 {
		return
	}

	c := &l.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range added {
		if c.loaded { // else they are read with the others
			c.add(one)
		}
	}
}

// List lists the labels on data, by place.
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

// Add labels places for what a program that belongs to no run may write there.
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

// Clear takes a letter off places and off all that they hold, since their owner has inspected them. Without such a
// label there the error is ErrNotFound.
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

// isOf reports whether a label is one of a place, by whichever name the file has by now, or of something below it.
func (l Label) isOf(p Place) bool {
	return p.Kind == l.Kind && (p.Name == l.Name || p.ID != FileID{} && p.ID == l.ID) || p.holds(l.key())
}

// holds reports whether a key is that of a place, or of something below it.
func (p Place) holds(key string) bool {
	for ; key != ""; key = parent(key) {
		if key == p.key() {
			return true
		}
	}
	return false
}

// TaintUntrusted is the letter in Run.Taint for content that strangers may have written. A run
// starts with it when files, a webhook, or a wake planned by such a run started it.
const TaintUntrusted = "A"

// TaintUpdate is what calls that are about to be made do to the taint of their run.
type TaintUpdate struct {
	Taint string // letters that the run has from now on, beside those that it has
	Tier  string // the confinement of a program that is started; a run keeps the weakest
	// Writes are the places that they write. What labels of data the run has, those have from then on.
	Writes []Place
	// UsedApprovals are the items of the inbox that allow them, with the keys of the calls.
	UsedApprovals map[int64]string
}

// RecordTaint records what an attempt is about to do, before it is done.
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

// TaintRun adds to the taint of a run, and returns all of it.
func TaintRun(tx *store.Tx, r record.Run, m TaintUpdate, now time.Time) (string, error) {
	// Tiers are letters, A the strongest confinement: the greater one is the weaker.
	taint, tier := mergeTaint(r.Taint, m.Taint), max(r.Tier, m.Tier)
	if taint != r.Taint || tier != r.Tier {
		tx.Run(`update runs set taint = $1, tier = $2 where id = $3`, taint, tier, r.ID)
	}
	if taint == r.Taint {
		return taint, nil
	}
	return taint, record.AddEvent(tx, record.Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.tainted"}, map[string]any{"taint": strings.Split(taint, "")})
}

// mergeTaint returns the letters of both, each once and in order.
func mergeTaint(a, b string) string {
	letters := strings.Split(a+b, "")
	slices.Sort(letters)
	return strings.Join(slices.Compact(letters), "")
}

// Adopted labels an agent's database that is about to be adopted, while its owner is asked about it:
// what the other ledger knew of the labels of its rows, this one does not.
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
