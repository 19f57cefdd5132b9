package cloud

import (
	"fmt"
	"regexp"
	"slices"
)

// Cell holds the parameters of a cell's own resources: a Valkey, and the queue by which it learns of changes. Each
// field's comment names its flag. [CellDefaults] returns the defaults.
type Cell struct {
	Stack   string            // --stack
	Version string            // of weir, for the tag weir:version
	Tags    map[string]string // --tag KEY=VALUE

	VPC     string   // --vpc
	Subnets []string // --subnet: in as many zones as there are nodes
	Clients []string // --client-group: security groups of the deciders

	NodeType   string // --node-type
	Replicas   int    // --replicas: of the primary, for failover; they never serve requests
	KMSKey     string // --kms-key: ARN
	NoRetain   bool   // --no-retain: deleting the stack deletes the Valkey without a final snapshot
	Topic      string // --topic: ARN of the deployment's ConfigTopicArn; "": no queue, deciders poll
	AlarmTopic string // --alarm-topic: ARN
	NoAlarms   bool   // --no-alarms
}

// CellDefaults returns the default parameters of a cell; only its location must be set.
func CellDefaults() Cell { return Cell{Stack: "weir-cell", NodeType: "cache.r7g.large", Replicas: 1} }

var (
	vpcID    = regexp.MustCompile(`^vpc-[0-9a-f]{8,17}$`)
	subnetID = regexp.MustCompile(`^subnet-[0-9a-f]{8,17}$`)
	groupID  = regexp.MustCompile(`^sg-[0-9a-f]{8,17}$`)
	nodeType = regexp.MustCompile(`^cache\.[a-z0-9-]+\.[a-z0-9]+$`)
)

// Check rejects parameters that AWS would refuse. The error names the flag and the remedy.
func (c *Cell) Check() error {
	if err := checkNames(c.Stack, c.Tags); err != nil {
		return err
	}
	not := func(pattern *regexp.Regexp) func(string) bool {
		return func(s string) bool { return !pattern.MatchString(s) }
	}
	switch {
	case !vpcID.MatchString(c.VPC):
		return fmt.Errorf("--vpc %q: must be the id of the network, such as vpc-0123456789abcdef0", c.VPC)
	case len(c.Subnets) == 0 || slices.ContainsFunc(c.Subnets, not(subnetID)):
		return fmt.Errorf("--subnet %v: at least one is required, such as subnet-0123456789abcdef0", c.Subnets)
	case len(c.Clients) == 0 || slices.ContainsFunc(c.Clients, not(groupID)):
		return fmt.Errorf("--client-group %v: at least one is required, such as sg-0123456789abcdef0", c.Clients)
	case !nodeType.MatchString(c.NodeType):
		return fmt.Errorf("--node-type %q: must be a type such as cache.r7g.large", c.NodeType)
	case c.Replicas < 0 || c.Replicas > 5:
		return fmt.Errorf("--replicas %d: must be from 0 to 5", c.Replicas)
	case c.Replicas > 0 && len(c.Subnets) < 2:
		return fmt.Errorf("--replicas %d: needs a --subnet in another zone", c.Replicas)
	case c.KMSKey != "" && !keyARN.MatchString(c.KMSKey):
		return fmt.Errorf("--kms-key %q: must be the ARN of a key, such as arn:aws:kms:REGION:ACCOUNT:key/ID", c.KMSKey)
	case c.Topic != "" && !topicARN.MatchString(c.Topic):
		return fmt.Errorf("--topic %q: must be the ARN of an SNS topic: the output ConfigTopicArn of the deployment", c.Topic)
	case c.AlarmTopic != "" && !topicARN.MatchString(c.AlarmTopic):
		return fmt.Errorf("--alarm-topic %q: must be the ARN of an SNS topic, such as arn:aws:sns:REGION:ACCOUNT:NAME", c.AlarmTopic)
	case c.AlarmTopic != "" && c.NoAlarms:
		return fmt.Errorf("--alarm-topic: there are no alarms with --no-alarms: omit one of them")
	}
	return nil
}

func (c *Cell) describe() *stack {
	s := newStack(c.Stack, "weir: a cell, its Valkey and its queue of changes", allTags(c.Stack, c.Version, c.Tags))
	c.valkey(s)
	if c.Topic != "" {
		c.queue(s)
	}
	if !c.NoAlarms {
		for _, a := range c.alarms() {
			a.add(s, c.Stack, c.AlarmTopic)
		}
	}
	return s
}

const valkeyPort = 6379

// valkey describes one shard, because a decision is one script on one primary. The outputs contain no reader
// endpoint, because a replica may not know what was spent.
func (c *Cell) valkey(s *stack) {
	s.add("ValkeyAccess", "AWS::EC2::SecurityGroup", obj{"GroupDescription": "weir: deciders to Valkey", "VpcId": c.VPC, "SecurityGroupEgress": list{
		obj{"IpProtocol": "-1", "CidrIp": "127.0.0.1/32", "Description": "Valkey calls nobody"},
	}})
	for i, group := range c.Clients {
		s.add(fmt.Sprintf("ValkeyClients%d", i+1), "AWS::EC2::SecurityGroupIngress", obj{
			"GroupId": att{"ValkeyAccess", "GroupId"}, "SourceSecurityGroupId": group, "IpProtocol": "tcp", "FromPort": valkeyPort, "ToPort": valkeyPort,
		})
	}
	s.add("ValkeySubnets", "AWS::ElastiCache::SubnetGroup", obj{"Description": "weir: a cell", "SubnetIds": anyList(c.Subnets)})
	s.add("ValkeyParameters", "AWS::ElastiCache::ParameterGroup", obj{
		"CacheParameterGroupFamily": "valkey8", "Description": "weir: an evicted bucket is a full bucket", "Properties": obj{"maxmemory-policy": "noeviction"},
	})
	valkey := obj{
		"ReplicationGroupDescription": "weir: buckets of a cell", "Engine": "valkey", "EngineVersion": "8.0", "CacheNodeType": c.NodeType, "Port": valkeyPort,
		"NumNodeGroups": 1, "ReplicasPerNodeGroup": c.Replicas, "AutomaticFailoverEnabled": c.Replicas > 0, "MultiAZEnabled": c.Replicas > 0,
		"TransitEncryptionEnabled": true, "TransitEncryptionMode": "required", "AtRestEncryptionEnabled": true,
		"CacheSubnetGroupName": ref("ValkeySubnets"), "CacheParameterGroupName": ref("ValkeyParameters"),
		"SecurityGroupIds": list{att{"ValkeyAccess", "GroupId"}}, "SnapshotRetentionLimit": 1,
	}
	if c.KMSKey != "" {
		valkey["KmsKeyId"] = c.KMSKey
	}
	r := s.add("Valkey", "AWS::ElastiCache::ReplicationGroup", valkey)
	r.keep(false)
	if !c.NoRetain {
		r.DeletionPolicy, r.UpdateReplacePolicy = "Snapshot", "Snapshot"
	}
	s.out("Store", "The store of the cell's deciders: --store", sub("rediss://${Valkey.PrimaryEndPoint.Address}:${Valkey.PrimaryEndPoint.Port}/0"))
}

// receives is how often a message is tried before it is set aside.
const receives = 5

// queue subscribes a queue to the changes. Messages that cannot be delivered or read go to a second queue.
func (c *Cell) queue(s *stack) {
	queue := func(id, suffix string, more obj) {
		more["QueueName"], more["MessageRetentionPeriod"] = c.Stack+"-"+suffix, 14*24*3600
		if c.KMSKey != "" {
			more["KmsMasterKeyId"] = c.KMSKey
		} else {
			more["SqsManagedSseEnabled"] = true
		}
		s.add(id, "AWS::SQS::Queue", more)
		s.add(id+"Policy", "AWS::SQS::QueuePolicy", obj{
			"Queues": list{ref(id)},
			"PolicyDocument": document(obj{
				"Sid": "Topic", "Effect": "Allow", "Principal": obj{"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage", "Resource": att{id, "Arn"},
				"Condition": obj{"ArnEquals": obj{"aws:SourceArn": c.Topic}},
			}, obj{
				"Sid": "TLSOnly", "Effect": "Deny", "Principal": obj{"AWS": "*"}, "Action": "sqs:*", "Resource": att{id, "Arn"},
				"Condition": obj{"Bool": obj{"aws:SecureTransport": "false"}},
			}),
		})
	}
	queue("DeadChanges", "dead-changes", obj{})
	queue("Changes", "changes", obj{
		"VisibilityTimeout": 30, "ReceiveMessageWaitTimeSeconds": 20,
		"RedrivePolicy": obj{"deadLetterTargetArn": att{"DeadChanges", "Arn"}, "maxReceiveCount": receives},
	})
	s.add("ChangesSubscription", "AWS::SNS::Subscription", obj{
		"TopicArn": c.Topic, "Region": arnRegion(c.Topic), "Protocol": "sqs", "Endpoint": att{"Changes", "Arn"}, "RawMessageDelivery": true,
		"RedrivePolicy": obj{"deadLetterTargetArn": att{"DeadChanges", "Arn"}},
	})
	s.add("ChangesReader", "AWS::IAM::ManagedPolicy", obj{
		"ManagedPolicyName": c.Stack + "-changes", "Description": "weir: read the changes that a cell is told of",
		"PolicyDocument": document(obj{
			"Effect": "Allow", "Action": list{"sqs:DeleteMessage", "sqs:ReceiveMessage"},
			"Resource": att{"Changes", "Arn"},
		}),
	})
	s.out("QueueUrl", "The queue of changes", ref("Changes"))
	s.out("DeadQueueUrl", "Messages that could not be delivered or read", ref("DeadChanges"))
}

// arnRegion returns the region of a valid ARN.
func arnRegion(arn string) string {
	return regexp.MustCompile(`^(?:[^:]*:){3}([^:]*)`).FindStringSubmatch(arn)[1]
}

func (c *Cell) alarms() []alarm {
	var all []alarm
	for node := 1; node <= 1+c.Replicas; node++ { // any of them may be the primary by now
		cache := func(id, name, metric, stat, why string, threshold, periods int) alarm {
			return alarm{
				id: fmt.Sprint(id, node), name: fmt.Sprintf("%s-%d", name, node), why: why, space: "AWS/ElastiCache", metric: metric, stat: stat,
				dimensions: dimension("CacheClusterId", sub(fmt.Sprintf("${Valkey}-%03d", node))), threshold: threshold, periods: periods,
			}
		}
		all = append(all,
			cache("ValkeyBusy", "valkey-busy", "EngineCPUUtilization", "Maximum", "The one thread on which Valkey decides is close to its capacity", 75, 2),
			cache("ValkeyFull", "valkey-full", "DatabaseMemoryUsagePercentage", "Maximum", "Valkey decides nothing when its memory is full", 75, 1),
			cache("ValkeyEvicts", "valkey-evicts", "Evictions", "Sum", "An evicted bucket is a full bucket: maxmemory-policy must be noeviction", 0, 1),
		)
		if c.Replicas > 0 {
			all = append(all, cache("ValkeyLag", "valkey-lag", "ReplicationLag", "Maximum", "A failover would lose this many seconds of debits", 1, 2))
		}
	}
	if c.Topic == "" {
		return all
	}
	queue := func(id, name, of, metric, why string, threshold int) alarm {
		return alarm{
			id: id, name: name, why: why, space: "AWS/SQS", metric: metric, stat: "Maximum",
			dimensions: dimension("QueueName", att{of, "QueueName"}), threshold: threshold, periods: 1,
		}
	}
	return append(all,
		queue("ChangesOld", "changes-old", "Changes", "ApproximateAgeOfOldestMessage", "The cell's deciders do not read changes", 30),
		queue("ChangesDead", "changes-dead", "DeadChanges", "ApproximateNumberOfMessagesVisible", "The cell was not notified of a change, and learns of it at its next reconciliation", 0),
	)
}
