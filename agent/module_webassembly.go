package agent

import (
	"rouse/skills"
	"rouse/skills/module"
)

// moduleWASM is the WebAssembly that a skill declares, audited: what a module may instantiate is sent to its process with it, which
// can open no file (OSL-33). The error says what is wrong with it.
func moduleWASM(s *skills.Skill) ([]module.WASM, error) {
	codes, err := s.WASMCode()
	if err != nil {
		return nil, err
	}

	var out []module.WASM
	for i, code := range codes {
		w := s.Manifest.WASM[i]
		out = append(out, module.WASM{ID: w.ModuleID, Code: code, Exports: w.Exports, MemoryMB: w.MemoryLimitMB})
	}
	return out, nil
}
