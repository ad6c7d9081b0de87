SELECT user,
       count(*) AS clicks,
       max(at) AS last_seen
FROM events
GROUP BY user
