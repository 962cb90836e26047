package skill

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/skills"
)

// Options configures the skill tools of one run.
type Options struct {
	View skills.View
	// Verify returns an error if a skill must not be used now. Optional.
	Verify   func(*skills.Skill) error
	Loaded   *LoadedSet     // skills loaded by the prompt or by earlier attempts; optional
	Tools    *tool.Registry // tools that a search finds in addition to skills; optional
	Unlisted *tool.Unlisted // the part of Tools not listed for the model; optional
	// ToolsOnly hides skills from capabilities_load and capabilities_discover.
	ToolsOnly bool
	Denied    []string // tools that exist but are denied to the agent
}

// LoadedSet is the set of skills that are loaded: the model of the run has received their
// instructions.
type LoadedSet struct{ names sync.Map }

// NewLoadedSet returns a set with the named skills.
func NewLoadedSet(names ...string) *LoadedSet {
	l := &LoadedSet{}
	for _, name := range names {
		l.add(name)
	}
	return l
}

// Has reports whether a skill is in the set.
func (l *LoadedSet) Has(name string) bool {
	_, ok := l.names.Load(name)
	return ok
}

func (l *LoadedSet) add(name string) { l.names.Store(name, true) }

// Loader loads the skills of one run and records which skills are loaded.
type Loader struct {
	Options
	mu     sync.Mutex            // held during a load, so that concurrent calls load a skill once
	finder func() *skills.Finder // created on first use
}

// New returns the loader of a run.
func New(o Options) *Loader {
	if o.Loaded == nil {
		o.Loaded = NewLoadedSet()
	}
	s := &Loader{Options: o}
	s.finder = sync.OnceValue(func() *skills.Finder { return skills.NewFinder(s.entries()) })
	for _, sk := range s.View.All() {
		if s.Loaded.Has(sk.Name) {
			s.listTools(sk)
		}
	}
	return s
}

// listTools adds the allowed tools of a skill to the tools listed for the model.
func (s *Loader) listTools(sk *skills.Skill) {
	for _, name := range sk.AllowedTools {
		s.Unlisted.Load(name)
	}
}

// loaded is the result of loading a skill. The loop never removes results with skill_content from
// the context.
type loaded struct {
	Skill   string `json:"skill,omitempty"`
	Content string `json:"skill_content,omitempty"`
	Note    string `json:"note,omitempty"`
}

// load returns the content of a skill. If the skill is already loaded and again is false, it
// returns only a note.
func (s *Loader) load(nameOrPath string, again bool) tool.Envelope {
	sk, err := s.View.Find(nameOrPath)
	switch {
	case errors.Is(err, skills.ErrNotGranted):
		return tool.Failure(tool.KindRejected, "%v; its owner can name it under the agent's skills", err)
	case err != nil:
		return s.unknownSkill(nameOrPath, err)
	}

	// Check loaded skills again, because their files may have changed.
	if s.Verify != nil {
		if err := s.Verify(sk); err != nil {
			return tool.Failure(tool.KindRejected, "%v", err)
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.Loaded.Has(sk.Name) && !again {
		return tool.Success(loaded{Skill: sk.Name, Note: "is loaded already; its instructions stand above. If you cannot see them any more, load it with again: true"})
	}

	text, err := sk.Content()
	if err != nil {
		return tool.Failure(tool.KindUnavailable, "the skill %s cannot be read: %v", sk.Name, err)
	}

	s.Loaded.add(sk.Name)
	s.listTools(sk)
	return tool.Success(loaded{Skill: sk.Name, Content: text})
}

// unknownSkill returns the error for an unknown skill, with the names of existing skills.
func (s *Loader) unknownSkill(name string, err error) tool.Envelope {
	const most = 20
	all := s.View.All()
	var names []string
	for _, sk := range all[:min(len(all), most)] {
		names = append(names, sk.Name)
	}

	say := "the skills are " + strings.Join(names, ", ")
	if len(all) > most {
		say = fmt.Sprintf("there are %d skills; find one with %s", len(all), discoverSpec.Name)
	}
	return tool.Failure(tool.KindNotFound, "%v; %s", err, say)
}

// LoadFile loads a skill by the path of its SKILL.md. It returns false if path is not a skill's
// SKILL.md.
func (s *Loader) LoadFile(path string) (tool.Envelope, bool) {
	for _, sk := range s.View.All() {
		if path == sk.File {
			return s.load(sk.Name, true), true // again: a read always returns the content
		}
	}
	return tool.Envelope{}, false
}

// LoadedIn returns the skills that a transcript loaded. The attempt that resumes the transcript
// starts with them.
func LoadedIn(messages []model.Message) []string {
	var out []string
	for _, m := range messages {
		// Decoding is slow, and few messages contain the key.
		if m.Role != model.RoleTool || !strings.Contains(m.Text, `"skill_content":`) {
			continue
		}

		var e tool.Envelope
		if json.Unmarshal([]byte(m.Text), &e) == nil {
			out = append(out, skillsIn(e)...)
		}
	}

	return out
}

// skillsIn returns the skills that a call loaded.
func skillsIn(e tool.Envelope) (out []string) {
	var l struct {
		Skill  string   `json:"skill"`
		Loaded []string `json:"loaded"`
	}
	if !e.OK || json.Unmarshal(e.Result, &l) != nil {
		return nil
	}
	if l.Skill != "" {
		out = append(out, l.Skill)
	}
	for _, id := range l.Loaded {
		if name, ok := strings.CutPrefix(id, skillPrefix); ok {
			out = append(out, name)
		}
	}
	return out
}

// ToolsLoadedIn returns the tools that a transcript loaded. The attempt that resumes the transcript
// starts with them.
func ToolsLoadedIn(messages []model.Message) []string {
	var out []string
	for _, m := range messages {
		var e tool.Envelope
		if m.Role == model.RoleTool && m.Name == loadAllSpec.Name && json.Unmarshal([]byte(m.Text), &e) == nil {
			out = append(out, loadedTools(e)...)
		}
	}
	return out
}

// loadedTools returns the tools that a call of capabilities_load loaded.
func loadedTools(e tool.Envelope) (out []string) {
	var l loadedAll
	if !e.OK || json.Unmarshal(e.Result, &l) != nil {
		return nil
	}
	for _, id := range l.Loaded {
		if name, ok := strings.CutPrefix(id, toolPrefix); ok {
			out = append(out, name)
		}
	}
	return out
}

// Listing wraps a tool of the loader. When a result of the wrapped tool loads tools, they are
// listed for the model, even if the result is a recorded one.
func (s *Loader) Listing(t tool.Tool) tool.Tool {
	if t.Class() != tool.ClassLoad {
		return t
	}
	return t.MapResult(func(e tool.Envelope) tool.Envelope {
		for _, name := range loadedTools(e) {
			s.Unlisted.Load(name)
		}
		for _, name := range skillsIn(e) {
			if sk, err := s.View.Find(name); err == nil {
				s.listTools(sk)
			}
		}
		return e
	})
}
