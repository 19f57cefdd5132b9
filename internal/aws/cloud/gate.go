package cloud

import (
	"fmt"
	"regexp"
	"slices"
)

// Gate holds the parameters of a rollout gate: an AppConfig profile that says how far weir limits apply --gate may
// go, and that rolls back by itself when an alarm is raised. A table has one gate, whatever cells it feeds. Each
// field's comment names its flag. [GateDefaults] returns the defaults.
type Gate struct {
	Stack   string            // --stack
	Version string            // of weir, for the tag weir:version
	Tags    map[string]string // --tag KEY=VALUE

	Alarms []string // --rollback-alarm: ARNs; none: nothing rolls back by itself
	Bake   int      // --gate-bake: minutes for which a version is watched after it is deployed
}

// GateDefaults returns the default parameters of a gate.
func GateDefaults() Gate { return Gate{Stack: "weir-gate", Bake: 10} }

var alarmARN = regexp.MustCompile(`^arn:aws(-[a-z-]+)?:cloudwatch:[a-z0-9-]+:\d{12}:alarm:.{1,255}$`)

// maxMonitors is how many alarms an AppConfig environment can have.
const maxMonitors = 5

// Check rejects parameters that AWS would refuse. The error names the flag and the remedy.
func (g *Gate) Check() error {
	if err := checkNames(g.Stack, g.Tags); err != nil {
		return err
	}
	if len(g.Alarms) > maxMonitors {
		return fmt.Errorf("--rollback-alarm: %d alarms, AppConfig watches at most %d: combine several into a composite alarm", len(g.Alarms), maxMonitors)
	}
	for i, arn := range g.Alarms {
		switch {
		case !alarmARN.MatchString(arn):
			return fmt.Errorf("--rollback-alarm %q: must be the ARN of an alarm, such as arn:aws:cloudwatch:REGION:ACCOUNT:alarm:NAME", arn)
		case slices.Contains(g.Alarms[:i], arn):
			return fmt.Errorf("--rollback-alarm %q: is given twice", arn)
		}
	}
	if g.Bake < 0 || g.Bake > 1440 {
		return fmt.Errorf("--gate-bake %d: must be from 0 to 1440 minutes", g.Bake)
	}
	return nil
}

// gateFormat is the format of the document; internal/cli reads it.
const gateFormat = "weir-gate-1"

// gateSchema rejects what weir limits apply --gate would.
func gateSchema() obj {
	return obj{
		"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "required": list{"format", "rollouts"}, "additionalProperties": false,
		"properties": obj{
			"format": obj{"enum": list{gateFormat}},
			"rollouts": obj{
				"type": "object", "additionalProperties": false,
				"patternProperties": obj{"^sha256:[0-9a-f]{64}$": obj{"type": "integer", "minimum": 0, "maximum": 100}},
			},
		},
	}
}

// describe deploys a version to all pollers at once: only one process rolls out, and the steps are over entities.
func (g *Gate) describe() *stack {
	s := newStack(g.Stack, "weir: how far limits may be rolled out", allTags(g.Stack, g.Version, g.Tags))
	of := func(more obj) obj { return with(obj{"ApplicationId": ref("Application")}, more) }
	s.add("Application", "AWS::AppConfig::Application", obj{"Name": g.Stack, "Description": "weir: how far limits may be rolled out"})
	environment := of(obj{"Name": g.Stack, "Description": "weir: rolls back on an alarm"})
	if len(g.Alarms) > 0 {
		s.add("AlarmRole", "AWS::IAM::Role", obj{
			"RoleName":                 g.Stack + "-alarms",
			"AssumeRolePolicyDocument": document(obj{"Effect": "Allow", "Principal": obj{"Service": "appconfig.amazonaws.com"}, "Action": "sts:AssumeRole"}),
			"Policies": list{obj{"PolicyName": "alarms", "PolicyDocument": document(obj{
				"Effect": "Allow", "Action": "cloudwatch:DescribeAlarms", "Resource": "*", // composite alarms have no resource-level permissions
			})}},
		})
		var monitors list
		for _, arn := range g.Alarms {
			monitors = append(monitors, obj{"AlarmArn": arn, "AlarmRoleArn": att{"AlarmRole", "Arn"}})
		}
		environment["Monitors"] = monitors
	}
	s.add("Environment", "AWS::AppConfig::Environment", environment)
	s.add("Profile", "AWS::AppConfig::ConfigurationProfile", of(obj{
		"Name": g.Stack, "Description": "weir: percentages by the hash of a manifest", "LocationUri": "hosted", "Type": "AWS.Freeform",
		"Validators": list{obj{"Type": "JSON_SCHEMA", "Content": compact(gateSchema())}},
	}))
	s.add("Strategy", "AWS::AppConfig::DeploymentStrategy", obj{
		"Name": g.Stack, "Description": "weir: at once, then watched", "DeploymentDurationInMinutes": 0, "GrowthType": "LINEAR", "GrowthFactor": 100,
		"FinalBakeTimeInMinutes": g.Bake, "ReplicateTo": "NONE",
	})
	// The version to roll back to before the first rollout.
	s.add("Closed", "AWS::AppConfig::HostedConfigurationVersion", of(obj{
		"ConfigurationProfileId": ref("Profile"), "ContentType": "application/json", "Content": compact(obj{"format": gateFormat, "rollouts": obj{}}),
	}))
	s.add("Closing", "AWS::AppConfig::Deployment", of(obj{
		"EnvironmentId": ref("Environment"), "ConfigurationProfileId": ref("Profile"), "ConfigurationVersion": ref("Closed"), "DeploymentStrategyId": ref("Strategy"),
	}))
	s.add("Reader", "AWS::IAM::ManagedPolicy", obj{
		"ManagedPolicyName": g.Stack + "-read", "Description": "weir: the gate's agent, beside weir limits apply --gate",
		"PolicyDocument": document(obj{
			"Effect": "Allow", "Action": list{"appconfig:GetLatestConfiguration", "appconfig:StartConfigurationSession"},
			"Resource": sub("arn:${AWS::Partition}:appconfig:${AWS::Region}:${AWS::AccountId}:application/${Application}/environment/${Environment}/configuration/${Profile}"),
		}),
	})
	s.out("GateUrl", "The URL at the agent, for weir limits apply --gate", fmt.Sprintf("http://localhost:2772/applications/%s/environments/%[1]s/configurations/%[1]s", g.Stack))
	s.out("ApplicationId", "The application", ref("Application"))
	s.out("EnvironmentId", "The environment", ref("Environment"))
	s.out("ProfileId", "The profile", ref("Profile"))
	s.out("StrategyId", "The deployment strategy", ref("Strategy"))
	return s
}
