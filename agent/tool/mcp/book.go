package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aymanbagabas/go-udiff"

	"rouse/internal/atomicfile"
	"rouse/internal/text"
)

// Book stores, for each server, the tools its owner has approved and the tools it listed last. It
// keeps one file per server, in a folder of the home that agents cannot reach.
type Book struct {
	dir string // if empty, records are not stored and no tool is approved
	mu  sync.Mutex
}

// NewBook returns a book stored in dir. The folder is created with the first record.
func NewBook(dir string) *Book { return &Book{dir: dir} }

// Record is the stored state of one server.
type Record struct {
	Identity string       `json:"identity"` // hash of the program or address, see Server.Identity
	Approved []Definition `json:"approved,omitempty"`
	Since    time.Time    `json:"since,omitzero"` // time of the latest approval
	Seen     []Definition `json:"seen,omitempty"`
	SeenAt   time.Time    `json:"seen_at,omitzero"` // zero if the server has not been asked yet
	Says     string       `json:"says,omitempty"`   // name and version the server reports
	Noise    string       `json:"noise,omitempty"`  // report on lines of standard output that are not messages
	Told     string       `json:"told,omitempty"`   // last change reported to the owner

	// Client is rouse's OAuth client at the server. Nil if rouse does not sign in.
	Client *Client `json:"client,omitempty"`
}

// maxBook limits the size of a server's file, in bytes.
const maxBook = 64 << 20

// Of returns the record of a server. If the stored record belongs to another program or address
// with the same name, it returns an empty record.
func (b *Book) Of(s Server) (Record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read(s)
}

func (b *Book) path(s Server) string { return filepath.Join(b.dir, s.Name+".json") }

func (b *Book) read(s Server) (r Record, err error) {
	empty := Record{Identity: s.Identity()}
	if b.dir == "" {
		return empty, nil
	}

	raw, err := os.ReadFile(b.path(s))
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return empty, fmt.Errorf("what is approved of the MCP server %s cannot be read: %w", s.Name, err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return empty, fmt.Errorf("what is approved of the MCP server %s is damaged, so that nothing of it is; remove %s, and approve it again with: rouse mcp-servers approve %[1]s", s.Name, b.path(s))
	}
	if r.Identity != empty.Identity {
		return empty, nil
	}
	return r, nil
}

// change reads, changes and writes the record of a server.
func (b *Book) change(s Server, how func(*Record) error) (r Record, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, err = b.read(s); err != nil {
		return r, err
	}
	if err := how(&r); err != nil || b.dir == "" {
		return r, err
	}

	raw, err := json.MarshalIndent(r, "", " ")
	switch {
	case err != nil:
		return r, fmt.Errorf("what is known of the MCP server %s cannot be written: %w", s.Name, err)
	case len(raw) > maxBook:
		return r, fmt.Errorf("what the MCP server %s says of its tools has more than %s", s.Name, text.Size(maxBook))
	}
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return r, fmt.Errorf("what is known of the MCP server %s cannot be kept: %w", s.Name, err)
	}
	return r, atomicfile.Write(b.path(s), raw, 0o600)
}

// See stores the tools that a server lists now. It returns news if the owner must be told of a
// difference from the approved tools. Each change is reported once.
func (b *Book) See(s Server, found []Definition, says, noise string) (r Record, news string, err error) {
	r, err = b.change(s, func(r *Record) error {
		r.Seen, r.SeenAt, r.Says, r.Noise = found, time.Now().UTC(), says, noise
		return nil
	})
	if err != nil {
		return r, "", err
	}

	if news = r.news(s); news == r.Told || len(r.Approved) == 0 {
		return r, "", nil
	}
	r, err = b.change(s, func(r *Record) error {
		r.Told = news
		return nil
	})
	return r, news, err
}

// Approve approves tools of a server as they were listed last: the named tools, or all tools if
// names is empty. Tools that cannot be used are not approved; unusable maps their names to the
// reason. shown optionally holds the hashes of all tools shown to the owner. If it is set and a
// tool differs from it, Approve returns an error.
func (b *Book) Approve(s Server, names []string, shown map[string]string) (approved []string, unusable map[string]string, err error) {
	unusable = map[string]string{}
	_, err = b.change(s, func(r *Record) error {
		if r.SeenAt.IsZero() {
			return fmt.Errorf("the MCP server %s was not asked yet which tools it has", s.Name)
		}
		if err := r.asShown(s, shown); err != nil {
			return err
		}
		for _, name := range names {
			if !slices.ContainsFunc(r.Seen, func(d Definition) bool { return d.Name == name }) {
				return fmt.Errorf("%s", text.NoSuch("tool of the MCP server "+s.Name, name, definitionNames(r.Seen)))
			}
		}

		for _, d := range r.Seen {
			if len(names) > 0 && !slices.Contains(names, d.Name) || len(names) == 0 && !s.allows(d.Name) {
				continue
			}
			if _, err := d.Schema(s.Name); err != nil {
				unusable[d.Name] = err.Error()
				continue
			}
			r.Approved = append(slices.DeleteFunc(r.Approved, func(old Definition) bool { return old.Name == d.Name }), d)
			approved = append(approved, d.Name)
		}

		if len(names) == 0 { // a tool that is gone would otherwise return without a review
			r.Approved = slices.DeleteFunc(r.Approved, func(d Definition) bool { return !slices.Contains(definitionNames(r.Seen), d.Name) })
		}
		slices.SortFunc(r.Approved, func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
		r.Since, r.Told = time.Now().UTC(), ""
		return nil
	})
	slices.Sort(approved)
	return approved, unusable, err
}

// asShown returns an error if a tool differs from the one shown to the owner.
func (r Record) asShown(s Server, shown map[string]string) error {
	for _, d := range r.Seen {
		if want, ok := shown[d.Name]; shown != nil && (!ok || want != d.Hash) {
			return fmt.Errorf("the tool %s of the MCP server %s is not as it was shown; look again: rouse mcp-servers show %[2]s", text.OneLine(d.Name), s.Name)
		}
	}
	return nil
}

// Revoke revokes the approvals of the named tools, or of all tools if names is empty.
func (b *Book) Revoke(s Server, names []string) (revoked []string, err error) {
	_, err = b.change(s, func(r *Record) error {
		for _, name := range names {
			if !slices.Contains(definitionNames(r.Approved), name) {
				return fmt.Errorf("%s", text.NoSuch("approved tool of the MCP server "+s.Name, name, definitionNames(r.Approved)))
			}
		}
		r.Approved = slices.DeleteFunc(r.Approved, func(d Definition) bool {
			if len(names) > 0 && !slices.Contains(names, d.Name) {
				return false
			}
			revoked = append(revoked, d.Name)
			return true
		})
		return nil
	})
	return revoked, err
}

// KeepClient stores rouse's OAuth client at a server.
func (b *Book) KeepClient(s Server, c *Client) error {
	_, err := b.change(s, func(r *Record) error {
		r.Client = c
		return nil
	})
	return err
}

func definitionNames(list []Definition) []string {
	out := make([]string, len(list))
	for i, d := range list {
		out[i] = d.Name
	}
	return out
}

func find(list []Definition, name string) (Definition, bool) {
	i := slices.IndexFunc(list, func(d Definition) bool { return d.Name == name })
	if i < 0 {
		return Definition{}, false
	}
	return list[i], true
}

// Status is the approval state of a tool.
type Status string

// The states of a tool.
const (
	StatusApproved Status = "approved"
	StatusNew      Status = "new"      // not approved yet
	StatusChanged  Status = "changed"  // differs from the approved tool
	StatusGone     Status = "gone"     // approved, but missing from the latest list
	StatusUnusable Status = "unusable" // models cannot call it
	StatusOff      Status = "off"      // excluded by the configuration (tools: allow)
)

// ToolState describes a tool of a server to the server's owner.
type ToolState struct {
	Name, Description, Annotations string
	Schema                         json.RawMessage // of the arguments, as agents use it; nil if the tool cannot be used
	Hash                           string
	Status                         Status
	Why                            string // reason the tool is unusable
	Difference                     string // unified diff from the approved definition
}

// States returns the tools listed last and the approved tools, sorted by name.
func (r Record) States(s Server) []ToolState {
	var out []ToolState
	for _, d := range r.Seen {
		t := ToolState{Name: d.Name, Description: d.Description(), Annotations: d.Annotations(), Hash: d.Hash, Status: StatusNew}
		old, was := find(r.Approved, d.Name)
		switch schema, err := d.Schema(s.Name); {
		case !s.allows(d.Name):
			t.Status = StatusOff
		case err != nil:
			t.Status, t.Why = StatusUnusable, err.Error()
		case was && old.Hash == d.Hash:
			t.Status = StatusApproved
		case was:
			t.Status, t.Difference = StatusChanged, old.difference(d)
			fallthrough
		default:
			t.Schema = schema
		}
		out = append(out, t)
	}

	for _, d := range r.Approved {
		if _, there := find(r.Seen, d.Name); !there {
			out = append(out, ToolState{Name: d.Name, Description: d.Description(), Annotations: d.Annotations(), Hash: d.Hash, Status: StatusGone})
		}
	}
	slices.SortFunc(out, func(a, b ToolState) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// difference returns a unified diff between two definitions of a tool, with one field per line.
func (d Definition) difference(now Definition) string {
	lines := func(d Definition) string {
		var plain any
		if err := json.Unmarshal(d.Said, &plain); err != nil {
			return d.Hash + "\n"
		}
		raw, err := json.MarshalIndent(plain, "", "  ")
		if err != nil {
			return d.Hash + "\n"
		}
		return text.Visible(text.Truncate(string(raw), 60_000)) + "\n"
	}
	return udiff.Unified("approved", "now", lines(d), lines(now))
}

// news describes in one sentence how the listed tools differ from the approved tools. It returns ""
// if they do not differ.
func (r Record) news(s Server) string {
	by := map[Status][]string{}
	for _, t := range r.States(s) {
		by[t.Status] = append(by[t.Status], text.OneLine(t.Name))
	}

	var out []string
	for _, one := range []struct {
		status Status
		words  string
	}{{StatusChanged, "changed: "}, {StatusNew, "new: "}, {StatusGone, "gone: "}} {
		if names := by[one.status]; len(names) > 0 {
			out = append(out, one.words+text.List(names, 10))
		}
	}
	return strings.Join(out, "; ")
}

// ApprovedTools returns the tools that agents may use: approved, allowed by the configuration and
// usable.
func (r Record) ApprovedTools(s Server) (out []Definition) {
	for _, d := range r.Approved {
		if _, err := d.Schema(s.Name); err == nil && s.allows(d.Name) {
			out = append(out, d)
		}
	}
	return out
}
