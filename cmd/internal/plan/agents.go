package plan

import (
	agentplan "rouse/agent/plan"
	"rouse/cmd/internal/config"
)

func newAgent(a config.Agent, models map[string]*agentplan.Model) agentplan.Agent {
	read, public := a.Reads()
	folders, database := a.PrivateFolders, a.PrivateDatabase
	return agentplan.Agent{
		Name: string(a.Name), Instructions: a.Instructions, Soul: a.Soul, Mode: a.Mode, HostFolder: a.HostFolder, Workdir: string(a.Workdir), Database: config.On(a.Database.Enabled),
		Allow: a.Tools.Allow, Deny: a.Tools.Deny, OnDemand: a.Tools.OnDemand, Bounds: newBounds(a.Bounds), DefaultSteps: a.DefaultSteps, Read: read, Public: public, PrivateFolders: folders, PrivateDatabase: database, Write: paths(a.Grants.Write),
		Model: models[a.Model], Phased: a.Loop == "phased", OnDenied: a.OnDenied, MinTier: a.MinTier, Unconfined: a.Reason,
		Commands: a.Commands(), Network: a.Network(), Secrets: a.Secrets(), Channels: a.Channels, Executor: a.Executor.Settings(), Checkout: a.Checkout.Spec(),
	}
}
