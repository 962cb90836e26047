package agent

import (
	"context"
	"fmt"

	"rouse/internal/awake"
)

// stayAwake keeps the machine awake until the attempt ends, where the skill asks for that (OSL-37). The error says why it cannot be had.
func (m *moduleRun) stayAwake(ctx context.Context) error {
	if !m.skill.Manifest.StaysAwake() {
		return nil
	}

	release, err := awake.Hold(ctx, fmt.Sprintf("run %d of the skill %s is on", m.run.ID, m.skill.Name))
	if err != nil {
		return fmt.Errorf("the skill %s needs this machine to be kept awake while it runs: %w", m.skill.Name, err)
	}
	m.release = release
	return nil
}

// letSleep ends what stayAwake began.
func (m *moduleRun) letSleep() {
	if m.release != nil {
		_ = m.release() // whose process has ended already is awake no more
	}
}
