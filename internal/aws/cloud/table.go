package cloud

// index is an index of the table. [github.com/weirlimits/weir/store/dynamodb.Create] creates the same ones.
type index struct{ name, hash, sort string }

var indexes = []index{{"all", "GP", "GS"}, {"parent", "PP", "PC"}, {"scope", "RP", "RO"}}

const (
	hashKey = "PK"
	sortKey = "SK"
	expiry  = "ttl"
)

func (p *Params) table(s *stack) {
	names, all := list{text(hashKey), text(sortKey)}, list{}
	for _, ix := range indexes {
		names = append(names, text(ix.hash), text(ix.sort))
		one := obj{"IndexName": ix.name, "KeySchema": keys(ix.hash, ix.sort), "Projection": obj{"ProjectionType": "KEYS_ONLY"}}
		p.throughput(one)
		all = append(all, one)
	}
	properties := obj{
		"TableName": p.Stack, "AttributeDefinitions": names, "KeySchema": keys(hashKey, sortKey), "GlobalSecondaryIndexes": all,
		"BillingMode":                      "PAY_PER_REQUEST",
		"StreamSpecification":              obj{"StreamViewType": "NEW_AND_OLD_IMAGES"},
		"TimeToLiveSpecification":          obj{"AttributeName": expiry, "Enabled": true},
		"PointInTimeRecoverySpecification": obj{"PointInTimeRecoveryEnabled": p.PITRDays > 0},
		"DeletionProtectionEnabled":        p.DeletionProtection,
	}
	if p.PITRDays > 0 {
		properties["PointInTimeRecoverySpecification"].(obj)["RecoveryPeriodInDays"] = p.PITRDays
	}
	if p.KMSKey != "" {
		properties["SSESpecification"] = obj{"SSEEnabled": true, "SSEType": "KMS", "KMSMasterKeyId": p.KMSKey}
	}
	p.throughput(properties)
	if p.Billing == Provisioned {
		properties["BillingMode"] = "PROVISIONED"
	}
	s.add("Table", "AWS::DynamoDB::Table", properties).keep(!p.NoRetain)
	if p.Billing == Provisioned {
		p.scale(s)
	}
	s.out("TableName", "The table", ref("Table"))
	s.out("TableArn", "The table's ARN", att{"Table", "Arn"})
	s.out("StreamArn", "The stream of the table's changes", att{"Table", "StreamArn"})
}

func text(name string) obj { return obj{"AttributeName": name, "AttributeType": "S"} }

func keys(hash, sort string) list {
	return list{obj{"AttributeName": hash, "KeyType": "HASH"}, obj{"AttributeName": sort, "KeyType": "RANGE"}}
}

func (p *Params) throughput(of obj) {
	if p.Billing == Provisioned {
		of["ProvisionedThroughput"] = obj{"ReadCapacityUnits": p.ReadMin, "WriteCapacityUnits": p.WriteMin}
	}
}

// busy is the target utilization of provisioned capacity, in percent.
const busy = 70

// scale makes the table and its indexes scale with their consumed capacity.
func (p *Params) scale(s *stack) {
	one := func(id, resource, dimension string) {
		for _, side := range []struct {
			name        string
			least, most int
		}{{"Read", p.ReadMin, p.ReadMax}, {"Write", p.WriteMin, p.WriteMax}} {
			of := dimension + ":" + side.name + "CapacityUnits"
			s.add(id+side.name+"Range", "AWS::ApplicationAutoScaling::ScalableTarget", obj{
				"ServiceNamespace": "dynamodb", "ResourceId": sub("table/${Table}" + resource), "ScalableDimension": of,
				"MinCapacity": side.least, "MaxCapacity": side.most,
			})
			s.add(id+side.name+"Scaling", "AWS::ApplicationAutoScaling::ScalingPolicy", obj{
				"PolicyName": s.name + "-" + id + side.name, "PolicyType": "TargetTrackingScaling",
				"ScalingTargetId": ref(id + side.name + "Range"),
				"TargetTrackingScalingPolicyConfiguration": obj{
					"PredefinedMetricSpecification": obj{"PredefinedMetricType": "DynamoDB" + side.name + "CapacityUtilization"},
					"TargetValue":                   busy, "ScaleInCooldown": 60, "ScaleOutCooldown": 0,
				},
			})
		}
	}
	one("Table", "", "dynamodb:table")
	for _, ix := range indexes {
		one("Index"+title(ix.name), "/index/"+ix.name, "dynamodb:index")
	}
}
