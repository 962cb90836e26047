package skills

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/template"

	"rouse/internal/text"
)

//go:embed scaffold
var scaffold embed.FS

// CasesFolder is where the cases of an executable skill are, in its folder (agent/eval/cases).
const CasesFolder = "tests"

// typesFile declares the module API for editors.
const typesFile = "host.d.ts"

// Scaffold is a new executable skill.
type Scaffold struct {
	Name        string // a slug
	Mode        Mode
	Author      string
	Description string // "": that of what is written
}

// sample is what the skill of a mode does.
type sample struct {
	Description, Input, InputMeans, Result, Asks string
	output                                       string // properties of its schema, JSON
	required                                     []string
}

var samples = map[Mode]sample{
	ModeDeclarative: {
		Description: "Counts the words, lines and characters of a text.",
		Input:       "text", InputMeans: "what is counted",
		Result:   "`words`, `lines` and `characters`, all numbers.",
		Asks:     "Nothing.",
		output:   `{"words": {"type": "integer"}, "lines": {"type": "integer"}, "characters": {"type": "integer"}}`,
		required: []string{"words", "lines", "characters"},
	},
	ModeFlow: {
		Description: "Sums a text up, asks a person what to change, and changes it.",
		Input:       "text", InputMeans: "what is summed up",
		Result:   "`summary`, a text, and `changed`, whether a person had it changed.",
		Asks:     "A model, for the purpose `summary`; and a person, once.",
		output:   `{"summary": {"type": "string"}, "changed": {"type": "boolean"}}`,
		required: []string{"summary", "changed"},
	},
	ModeAgentic: {
		Description: "Splits a topic into questions, answers them, and writes a report.",
		Input:       "topic", InputMeans: "what the report is about",
		Result:   "`artifactId` of the report, and how many questions are `answered` and `open`. The report itself is an artifact of the workspace.",
		Asks:     "A model, for the purpose `research`; and a workspace, in which it keeps what is done.",
		output:   `{"artifactId": {"type": "string"}, "answered": {"type": "integer"}, "open": {"type": "integer"}}`,
		required: []string{"artifactId", "answered", "open"},
	},
}

// ErrExists: there is something at the place of a new skill.
var ErrExists = errors.New("is there already")

// Write writes a skill that is valid and does something, for its author to change, into a new folder
// with its name in dir, and returns that folder. There must be none yet: that is ErrExists.
func (s Scaffold) Write(dir string) (string, error) {
	if !slug.MatchString(s.Name) {
		return "", fmt.Errorf("%q cannot be the name of a skill; write small letters, digits and hyphens, and begin with a letter", s.Name)
	}
	does, ok := samples[s.Mode]
	if !ok {
		return "", fmt.Errorf("the mode %s", noneOf(string(s.Mode), text.Strings(Modes())))
	}
	if s.Description != "" {
		does.Description = s.Description
	}

	files, err := s.files(does)
	if err != nil {
		return "", err
	}

	folder := filepath.Join(dir, s.Name)
	if err := os.Mkdir(folder, 0o755); errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("%s %w; choose another name, or remove it", folder, ErrExists)
	} else if err != nil {
		return "", err
	}
	if err := os.Mkdir(filepath.Join(folder, CasesFolder), 0o755); err != nil {
		return "", err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil { //nolint:gosec // to be published
			return "", err
		}
	}

	return folder, nil
}

// files are those of the skill, by their names.
func (s Scaffold) files(does sample) (map[string][]byte, error) {
	out := map[string][]byte{}
	for name, from := range map[string]string{moduleFile: string(s.Mode) + ".ts", CasesFolder + "/example.json": string(s.Mode) + ".json", typesFile: typesFile} {
		content, err := scaffold.ReadFile("scaffold/" + from)
		if err != nil {
			return nil, err
		}
		out[name] = content
	}

	docs, err := template.ParseFS(scaffold, "scaffold/docs.md")
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	if err := docs.Execute(&page, struct {
		Name string
		sample
	}{s.Name, does}); err != nil {
		return nil, err
	}

	manifest, err := json.MarshalIndent(s.manifest(does), "", "  ")
	if err != nil {
		return nil, err
	}
	out[manifestFile], out[docsFile] = append(manifest, '\n'), page.Bytes()
	return out, nil
}

// manifest declares what the module of the mode does, and nothing else.
func (s Scaffold) manifest(does sample) *Manifest {
	input, _ := json.Marshal(map[string]any{"type": "object", "properties": map[string]any{does.Input: map[string]string{"type": "string", "description": does.InputMeans}}, "required": []string{does.Input}})
	output, _ := json.Marshal(map[string]any{"type": "object", "properties": json.RawMessage(does.output), "required": does.required})
	m := &Manifest{
		Name: s.Name, Description: does.Description, Version: "0.1.0", Author: s.Author, SchemaVersion: SchemaVersion,
		Capabilities: []string{}, RequiredBindings: []Binding{}, Permissions: []Permission{}, InputSchema: input, OutputSchema: output,
		CompatibilityRequirements: []string{},
		Sandbox:                   SandboxRules{Isolation: defaultIsolation, MaxExecutionMS: DefaultMaxExecutionMS, MaxMemoryMB: DefaultMaxMemoryMB, AllowedGlobals: []string{}, NetworkRules: []NetworkRule{}},
		SupportedPlatforms:        []Platform{}, BridgeRequirement: BridgeNever, WorkspaceSupport: SupportNone, LongRunningSupport: SupportNone,
		ExecutionMode: s.Mode, AgenticConfig: &AgenticConfig{},
	}

	asksModel := func(purpose, kind, why string) {
		m.Permissions = []Permission{{Kind: PermissionLLM, Scope: purpose, Description: why}}
		m.LLMUsage = []LLMUsage{{PurposeID: purpose, Kind: kind, Description: why, EstimatedTokenBudget: 2000}}
	}
	version, most, budget := "1.0.0", 20, 10
	switch s.Mode {
	case ModeFlow:
		asksModel("summary", "summarization", "Sum the text up, and change the summary as its reader asks")
		m.UserInputSupport, m.LongRunningSupport, m.WorkspaceSupport, m.WorkspaceSchemaVersion = true, SupportOptional, SupportOptional, &version
	case ModeAgentic:
		asksModel("research", "generation", "Find questions, answer them, and write the report")
		m.LongRunningSupport, m.WorkspaceSupport, m.WorkspaceSchemaVersion = SupportOptional, SupportRequired, &version
		m.ArtifactVersioningSupport = true
		m.AgenticConfig = &AgenticConfig{Enabled: true, RequiresWorkspace: true, SupportsBackgroundExecution: true, SupportsRoleBasedExecution: true, MaxStepsPerRun: &most, DefaultStepBudget: &budget}
	}

	return m
}

// Modes are those that a skill can have.
func Modes() []Mode { return []Mode{ModeDeclarative, ModeFlow, ModeAgentic} }
