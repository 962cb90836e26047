package programs

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"rouse/agent/tool/moduleapi"
	"rouse/skills"
	"rouse/skills/install"
	"rouse/skills/module"
)

// Machine returns the machine that runs each module in a confined process of its own.
func (p *Hosts) Machine() (*module.Machine, error) {
	p.machineMu.Lock()
	defer p.machineMu.Unlock()
	if p.modules != nil {
		return p.modules, nil
	}

	box, err := p.Sandbox("")
	if err == nil {
		p.modules, err = module.New(module.Options{Sandbox: box})
	}
	return p.modules, err
}

// SkillProblem returns why a skill cannot be used, or "".
func SkillProblem(s *skills.Skill) string {
	err := install.Verify(s)
	if err == nil {
		_, err = s.Content()
	}
	if err != nil {
		return fmt.Sprintf("the skill %s cannot be used: %v", s.Name, err)
	}
	return ""
}

// ModuleProblem returns why the module of a skill cannot run, or "".
func (p *Hosts) ModuleProblem(s *skills.Skill) string {
	if err := install.Verify(s); err != nil {
		return fmt.Sprintf("the skill %s cannot be used: %v", s.Name, err)
	}

	why := s.Manifest.Obstacles(runtime.GOOS)
	for _, lack := range moduleapi.Missing(s.Manifest) {
		why = append(why, "it asks for what is not available in this version: "+lack)
	}
	if len(why) > 0 {
		return fmt.Sprintf("the skill %s cannot run here: %s", s.Name, strings.Join(why, "; "))
	}

	machine, err := p.Machine()
	if err != nil {
		return fmt.Sprintf("modules cannot be run here: %v", err)
	}
	var wrong *module.SyntaxError
	if _, err = machine.Compile(context.Background(), s.Dir); errors.As(err, &wrong) {
		return fmt.Sprintf("the module of the skill %s does not compile: %v", s.Name, wrong)
	}
	return "" // the run reports any other failure
}
