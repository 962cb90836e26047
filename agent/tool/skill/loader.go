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

// Options configure the skill tools of one run.
type Options struct {
	View skills.View
	// Verify says why a skill must not be used now, nil when it may be.
	Verify   func(*skills.Skill) error
	Loaded   *LoadedSet     // what earlier attempts, or the prompt, have loaded; nil: nothing
	Tools    *tool.Registry // what a search finds in addition to skills
	Unlisted *tool.Unlisted // those of Tools that are not listed for the model; nil: all are
	// ToolsOnly keeps capabilities_load from loading skills, and capabilities_discover from finding them.
	ToolsOnly bool
	Denied    []string // tools that exist, and are denied to the agent
}

// LoadedSet is the set of skills whose instructions the model of a run has read.
type LoadedSet struct{ names sync.Map }

// NewLoadedSet returns a set of skills by their names.
func NewLoadedSet(names ...string) *LoadedSet {
	l := &LoadedSet{}
	for _, name := range names {
		l.add(name)
	}
	return l
}

// Has reports whether a skill was read.
func (l *LoadedSet) Has(name string) bool {
	_, ok := l.names.Load(name)
	return ok
}

func (l *LoadedSet) add(name string) { l.names.Store(name, true) }

// Loader loads the skills of one run, and remembers which of them its model has read.
type Loader struct {
	Options
	mu     sync.Mutex            // held while a skill is loaded, so that of two calls at once one finds it loaded
	finder func() *skills.Finder // made when it is first needed
}

// New makes the loader of a run.
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

// listTools lists the tools for the model that a skill names as its allowed tools.
func (s *Loader) listTools(sk *skills.Skill) {
	for _, name := range sk.AllowedTools {
		s.Unlisted.Load(name)
	}
}

// loaded is the answer to a model that loads a skill. The loop never removes results with skill_content
// from the context (AGS-12).
type loaded struct {
	Skill   string `json:"skill,omitempty"`
	Content string `json:"skill_content,omitempty"`
	Note    string `json:"note,omitempty"`
}

// load answers with the content of a skill, or says that the model has it already (AGS-12).
func (s *Loader) load(nameOrPath string, again bool) tool.Envelope {
	sk, err := s.View.Find(nameOrPath)
	switch {
	case errors.Is(err, skills.ErrNotGranted):
		return tool.Failure(tool.KindRejected, "%v; its owner can name it under the agent's skills", err)
	case err != nil:
		return s.unknownSkill(nameOrPath, err)
	}

	// Also for a skill that was loaded before: its files may have been changed since.
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

// unknownSkill answers to a name that is no skill's, and says which skills there are.
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

// LoadFile answers a call that reads the whole SKILL.md of a skill by loading the skill; false for any
// other path.
func (s *Loader) LoadFile(path string) (tool.Envelope, bool) {
	for _, sk := range s.View.All() {
		if path == sk.File {
			return s.load(sk.Name, true), true // again: who reads a file wants to see it
		}
	}
	return tool.Envelope{}, false
}

// LoadedIn lists the skills that were loaded according to a transcript, for the attempt that continues it.
func LoadedIn(messages []model.Message) []string {
	var out []string
	for _, m := range messages {
		// The key is looked for first: nearly no message has it, and decoding each would take long.
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

// skillsIn lists the skills that a call has loaded.
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

// ToolsLoadedIn lists the tools that were loaded according to a transcript, for the attempt that continues it.
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

// loadedTools lists the tools that a call of capabilities_load has loaded.
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

// Listing returns a tool of the loader whose results list the tools that they load. The results may be recorded ones.
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
