package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"rouse/agent/sandbox"
)

// confineBench is what the start of a confined command costs, beside one that is merely started.
type confineBench struct {
	tiers map[sandbox.Tier]*sandbox.Sandbox
	took  map[sandbox.Tier][]float64 // ms
	bare  []float64                  // ms
}

// newConfineBench finds out which tiers there are; close gives them back.
func newConfineBench(ctx context.Context) (*confineBench, error) {
	b := &confineBench{tiers: map[sandbox.Tier]*sandbox.Sandbox{}, took: map[sandbox.Tier][]float64{}}
	for _, tier := range []sandbox.Tier{sandbox.TierA, sandbox.TierB} {
		s, err := sandbox.New(sandbox.Options{MaxTier: tier})
		if err != nil {
			b.close()
			return nil, err
		}

		b.tiers[tier] = s
		if have, _ := s.Tier(ctx); have != tier {
			// This machine has only a weaker tier, which has its own row or none.
			delete(b.tiers, tier)
			if err := s.Close(); err != nil {
				return nil, err
			}
		}
	}

	return b, nil
}

func (b *confineBench) close() {
	for _, s := range b.tiers {
		_ = s.Close() // it was only read
	}
}

// measure starts the program true in turns, until its end.
func (b *confineBench) measure(ctx context.Context, dir string, repeats int) error {
	path, err := exec.LookPath("true")
	if errors.Is(err, exec.ErrNotFound) {
		clear(b.tiers) // there is nothing here that could be started
		return nil
	}

	if err != nil {
		return err
	}

	for range repeats {
		begin := time.Now()
		if err := exec.CommandContext(ctx, path).Run(); err != nil {
			return err
		}

		b.bare = append(b.bare, 1000*time.Since(begin).Seconds())
		for tier, s := range b.tiers {
			begin := time.Now()
			res, err := s.Run(ctx, sandbox.Command{Argv: []string{path}, Dir: dir, Write: []string{dir}, MinTier: tier})
			if err != nil {
				return err
			}
			if res.Exit != 0 {
				return fmt.Errorf("%s on tier %s ended with %d %s", path, tier, res.Exit, res.Signal)
			}
			b.took[tier] = append(b.took[tier], 1000*time.Since(begin).Seconds())
		}
	}

	return nil
}

func (b *confineBench) figures() []Figure {
	var out []Figure
	for _, tier := range []sandbox.Tier{sandbox.TierA, sandbox.TierB} {
		if took := b.took[tier]; len(took) > 0 {
			out = append(out, compared("a command on tier "+string(tier), "ms, of fork and exec", took, b.bare))
		}
	}
	return out
}
