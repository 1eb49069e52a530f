-- Which queues get a copy of what is published to a topic.

-- name: subscribe
-- No row is changed when it is so already.
INSERT INTO subscriptions (topic, queue, filter) VALUES (:topic, :queue, :filter)
    ON CONFLICT (topic, queue) DO UPDATE SET filter = excluded.filter WHERE filter IS NOT excluded.filter;

-- name: unsubscribe
DELETE FROM subscriptions WHERE topic = :topic AND queue = :queue;

-- name: subscriptions
SELECT topic, queue, filter FROM subscriptions ORDER BY topic, queue;

-- name: subscriptions_of
SELECT topic, queue, filter FROM subscriptions WHERE topic = :topic ORDER BY queue;
